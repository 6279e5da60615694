//! The machine of a run, and its other load.

use serde::Serialize;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Machine {
    pub processor: String,
    pub processors: usize,
    pub kernel: String,
    /// The one-minute load before it began: what others do here.
    pub load: f64,
    /// The code's own checks are compiled in: the figures cannot be compared.
    pub debug_build: bool,
}

impl Machine {
    pub fn now() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| line.split_once(": ")).map(|it| it.1);
        let loads = read("/proc/loadavg");
        let load = loads.split(' ').next().and_then(|it| it.parse().ok());
        Machine {
            processor: model.unwrap_or("unknown").trim().to_owned(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: load.unwrap_or(0.0),
            debug_build: cfg!(debug_assertions),
        }
    }

    /// In words.
    pub fn text(&self) -> String {
        let debug = if self.debug_build {
            ", unoptimised build"
        } else {
            ""
        };
        format!(
            "{}, {} processors, Linux {}; load {:.1} before{debug}",
            self.processor, self.processors, self.kernel, self.load
        )
    }
}

/// Returns the processor of a server, and that of its client: another one, if there is one.
pub(crate) fn cores() -> (usize, usize) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (0, usize::from(processors > 1))
}
