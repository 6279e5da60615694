//! The systems: each a file in `programs/`, or a variant of one.

use crate::case::Touch;
use std::path::{Path, PathBuf};

/// A system in Python.
#[derive(Debug, Clone, Copy)]
pub(super) struct System {
    pub(super) name: &'static str,
    /// The file in `programs/` that runs its sides.
    pub(super) program: &'static str,
    /// Its file in `programs/`, and which of the things that that can do.
    pub(super) module: &'static str,
    pub(super) variant: &'static str,
    /// Modules that the program imports.
    pub(super) needs: &'static [&'static str],
    /// Whether its sides can look again and again; all can sleep.
    pub(super) spins: bool,
    /// How much it writes and reads of its payload.
    pub(super) touches: &'static [Touch],
}

pub(super) const BOTH: &[Touch] = &[Touch::Word, Touch::Touched];

const fn system(
    name: &'static str,
    module: &'static str,
    variant: &'static str,
    needs: &'static [&'static str],
    spins: bool,
) -> System {
    System {
        name,
        program: "run.py",
        module,
        variant,
        needs,
        spins,
        touches: BOTH,
    }
}

/// In the order in which each run visits them, after Rust's.
pub(super) const SYSTEMS: [System; 25] = [
    system(
        ARRAYS,
        "tranship_arrays",
        "born",
        &["numpy", "tranship"],
        true,
    ),
    system(
        FOREIGN,
        "tranship_arrays",
        "foreign",
        &["numpy", "tranship"],
        true,
    ),
    System {
        touches: &[Touch::Word],
        ..system(BUFFER, "tranship_buffers", "", &["tranship"], true)
    },
    system(
        "tranship-queue",
        "tranship_queue",
        "born",
        &["numpy", "tranship"],
        false,
    ),
    system(
        "tranship-queue-foreign",
        "tranship_queue",
        "foreign",
        &["numpy", "tranship"],
        false,
    ),
    system("multiprocessing.Queue", "mp_queue", "", &["numpy"], false),
    system(
        "multiprocessing.Pipe",
        "mp_pipe",
        "objects",
        &["numpy"],
        false,
    ),
    system(
        "multiprocessing.Pipe-bytes",
        "mp_pipe",
        "bytes",
        &["numpy"],
        false,
    ),
    system("shared_memory", "shared_memory", "born", &["numpy"], true),
    system(
        "shared_memory-foreign",
        "shared_memory",
        "foreign",
        &["numpy"],
        true,
    ),
    system(
        "iceoryx2-python",
        "iceoryx2_slices",
        "born",
        &["numpy", "iceoryx2"],
        true,
    ),
    system(
        "iceoryx2-python-foreign",
        "iceoryx2_slices",
        "foreign",
        &["numpy", "iceoryx2"],
        true,
    ),
    system("pyzmq", "zmq_ipc", "", &["numpy", "zmq"], false),
    system("tranship-store", "tranship_values", "store", PLAIN, false),
    system(
        "tranship-store-foreign",
        "tranship_values",
        "store-foreign",
        PLAIN,
        false,
    ),
    system(
        "tranship-broadcast",
        "tranship_values",
        "broadcast-foreign",
        PLAIN,
        false,
    ),
    system("tranship-executor", "executors", "born", PLAIN, false),
    system(
        "tranship-executor-foreign",
        "executors",
        "foreign",
        PLAIN,
        false,
    ),
    system(
        "ProcessPoolExecutor",
        "executors",
        "standard",
        &["numpy"],
        false,
    ),
    system("tranship-torch", "torch_queue", "born", TORCH, false),
    system(
        "tranship-torch-foreign",
        "torch_queue",
        "foreign",
        TORCH,
        false,
    ),
    system(
        "torch.multiprocessing",
        "torch_queue",
        "torch",
        &["numpy", "torch"],
        false,
    ),
    system(
        "tranship-arrow",
        "arrow_tensors",
        "queue",
        &["numpy", "pyarrow", "tranship"],
        false,
    ),
    system(
        "pyarrow-pipe",
        "arrow_tensors",
        "pipe",
        &["numpy", "pyarrow"],
        false,
    ),
    system("joblib", "executors", "joblib", &["numpy", "joblib"], false),
];
/// One writer and several readers, each of which reads every array.
pub(super) const SPREAD: [System; 5] = [
    spread("tranship-broadcast-each", "broadcast", PLAIN),
    spread("tranship-queue-each", "queues", PLAIN),
    spread("multiprocessing.Queue-each", "standard", &["numpy"]),
    spread("vllm-ring", "ring", &["numpy", "zmq"]),
    spread("vllm-ring-fit", "ring-fit", &["numpy"]),
];

const fn spread(
    name: &'static str,
    variant: &'static str,
    needs: &'static [&'static str],
) -> System {
    System {
        program: "spread.py",
        ..system(name, "spread", variant, needs, false)
    }
}

/// Loaders of batches of images, with two workers.
pub(super) const LOADERS: [System; 2] = [
    System {
        program: "loader.py",
        ..system("tranship-DataLoader", "loader", "tranship", TORCH, false)
    },
    System {
        program: "loader.py",
        ..system("torch.DataLoader", "loader", "torch", &["torch"], false)
    },
];
/// Bytes of a batch of 32 images of bytes.
pub(super) const BATCH_BYTES: usize = 32 * 3 * 224 * 224;
const PLAIN: &[&str] = &["numpy", "tranship"];
const TORCH: &[&str] = &["numpy", "torch", "tranship"];
/// The product in Rust, born in a pool in Python, copied into one, and without numpy.
pub(super) const RUST: &str = "tranship";
pub(super) const ARRAYS: &str = "tranship-python";
pub(super) const FOREIGN: &str = "tranship-python-foreign";
pub(super) const BUFFER: &str = "tranship-python-buffer";

/// The row's `op`.
pub(super) fn name_of(touch: Touch) -> &'static str {
    match touch {
        Touch::Untouched => "untouched",
        Touch::Word => "word",
        Touch::Touched => "touched",
    }
}

/// A file of this crate's, or of its neighbours'.
pub(super) fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
