//! The panorama's stages in isolated processes: the same pixels as in one process, the truth of the views, and what is
//! said when a stage dies.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use tranship_testkit::{Watchdog, artifact, folder, skipped};

const PHOTO: &str = "/usr/share/backgrounds/picosdeeuropa_by_Aitzol_Berasategi.jpg";
const FILE: &str = include_str!("../panorama.toml");
/// Small views: a debug build stitches them in a second.
const WIDTH: &str = "800";

/// Makes the programs, where OpenCV and the photograph are.
fn programs() -> Option<&'static Path> {
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        for (file, package) in [
            (
                "/usr/include/opencv4/opencv2/stitching.hpp",
                "libopencv-stitching-dev",
            ),
            (
                "/usr/include/opencv4/opencv2/imgcodecs.hpp",
                "libopencv-imgcodecs-dev",
            ),
            (PHOTO, "lomiri-wallpapers-16.04"),
        ] {
            if !Path::new(file).exists() {
                skipped(format!("the panorama: no {file} (Debian: {package})"));
                return None;
            }
        }
        let library = artifact("tranship-capi", "libtranship.so");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("panorama");
        let output = Command::new("make")
            .args(["--silent", "-C", env!("CARGO_MANIFEST_DIR")])
            .arg(format!("OUT={}", out.display()))
            .arg(format!(
                "TRANSHIP={}",
                library.parent().expect("a folder").display()
            ))
            .output()
            .expect("make");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Some(out)
    });
    made.as_deref()
}

/// A folder with views, and the file of components.
fn views(programs: &Path) -> tempfile::TempDir {
    let dir = folder().expect("a folder");
    for name in ["views", "out"] {
        std::fs::create_dir(dir.path().join(name)).expect("a folder");
    }
    let made = Command::new(programs.join("panorama-views"))
        .args([
            PHOTO.as_ref(),
            dir.path().join("views").as_os_str(),
            WIDTH.as_ref(),
        ])
        .status();
    assert!(made.expect("views").success());
    let text = ["stage", "photos"]
        .iter()
        .fold(FILE.to_owned(), |text, name| {
            let path = programs.join(format!("panorama-{name}"));
            text.replace(&format!("[\"panorama-{name}\""), &format!("[{path:?}"))
        });
    let text = text + "\n[manager.pressure]\nwatch = false\n";
    std::fs::write(dir.path().join("panorama.toml"), text).expect("a file");
    dir
}

fn isolated(dir: &Path, times: u32) -> Command {
    let mut command = Command::new(artifact("tranship-cli", "tranship"));
    command
        .arg("run")
        .arg(dir.join("panorama.toml"))
        .env("XDG_RUNTIME_DIR", dir)
        .env("PANORAMA_TIMES", times.to_string())
        .env_remove("TRANSHIP_SOCKET")
        .stdin(Stdio::null());
    command
}

fn alone(programs: &Path, dir: &Path, times: u32) -> Command {
    let mut command = Command::new(programs.join("panorama-alone"));
    command
        .arg(dir.join("out/alone.png"))
        .args(["1", &times.to_string()]);
    command.args((0..6).map(|number| dir.join(format!("views/{number}.png"))));
    command
}

#[test]
fn isolated_stages_make_the_same_pixels_as_one_process() {
    let dog = Watchdog::new();
    let Some(programs) = programs() else { return };
    let dir = views(programs);
    dog.step("isolated");
    let output = isolated(dir.path(), 2).output().expect("tranship runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    dog.step("alone");
    assert!(
        alone(programs, dir.path(), 2)
            .status()
            .expect("it runs")
            .success()
    );
    let read = |name: &str| std::fs::read(dir.path().join("out").join(name)).expect("a picture");
    assert!(read("panorama.png") == read("alone.png"), "other pixels");
}

/// A program of components that is ended when the test is over.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the process of a stage that runs in this folder.
fn process(dir: &Path, stage: &str) -> Option<i32> {
    let dir = dir.canonicalize().expect("a folder");
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    processes.into_iter().find_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let here = std::fs::read_link(entry.path().join("cwd")).ok()? == dir;
        let name = format!("panorama-stage\0{stage}\0");
        (here && line.ends_with(name.as_bytes()))
            .then(|| entry.file_name().to_str()?.parse().ok())?
    })
}

#[test]
fn the_cameras_are_those_that_took_the_views() {
    let _dog = Watchdog::new();
    let Some(programs) = programs() else { return };
    let dir = views(programs);
    let output = alone(programs, dir.path(), 1).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let numbers = |line: &str| -> Vec<f64> {
        let words = line.split_whitespace();
        words.map(|word| word.parse().expect("a number")).collect()
    };
    let found: Vec<_> = said
        .lines()
        .filter_map(|line| Some(numbers(line.strip_prefix("camera ")?)))
        .collect();
    let truth = std::fs::read_to_string(dir.path().join("views/truth.txt")).expect("the truth");
    let truth: Vec<_> = truth.lines().map(numbers).collect();
    assert_eq!((found.len(), truth.len()), (6, 6), "{said}");
    let ahead = |view: &[f64]| {
        let (yaw, pitch) = (view[1].to_radians(), view[2].to_radians());
        [
            yaw.sin() * pitch.cos(),
            -pitch.sin(),
            yaw.cos() * pitch.cos(),
        ]
    };
    let first = ahead(&truth[0]);
    for (found, truth) in found.iter().zip(&truth) {
        let cosine: f64 = first.iter().zip(ahead(truth)).map(|(a, b)| a * b).sum();
        let angle = cosine.min(1.0).acos().to_degrees();
        assert!(
            (found[0] / truth[0] - 1.0).abs() < 0.02,
            "{found:?}, {truth:?}"
        );
        assert!((found[1] - angle).abs() < 0.3, "{found:?}, {angle}");
    }
}

#[test]
fn a_stage_that_fails_is_named_with_the_image() {
    let _dog = Watchdog::new();
    let Some(programs) = programs() else { return };
    let dir = views(programs);
    let fog = image::RgbImage::from_pixel(800, 600, image::Rgb([128; 3]));
    fog.save(dir.path().join("views/3.png")).expect("a view");
    let output = isolated(dir.path(), 1).output().expect("tranship runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{said}");
    let report = "the stage features has ended, at image 4 of 6 (3.png)";
    assert!(said.contains(report), "{said}");
}

#[test]
fn a_stage_that_is_killed_is_named_with_the_image() {
    let dog = Watchdog::new();
    let Some(programs) = programs() else { return };
    for stage in ["features", "warp", "blend"] {
        dog.step(stage);
        let dir = views(programs);
        let mut command = isolated(dir.path(), 1000);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running(command.spawn().expect("tranship runs"));
        let output = running.0.stdout.take().expect("an output");
        let begin = format!("{stage}: ");
        let (mut last, mut killed) = (String::new(), false);
        for line in BufReader::new(output).lines() {
            let line = line.expect("a line");
            if let Some((_, place)) = line.split_once(&begin) {
                place.clone_into(&mut last);
                if !killed && place.starts_with("image 2 ") {
                    let pid = process(dir.path(), stage).expect("the stage's process");
                    kill(pid);
                    killed = true;
                }
            }
        }
        let status = running.0.wait().expect("its end");
        let mut said = String::new();
        let mut errors = running.0.stderr.take().expect("an output");
        errors.read_to_string(&mut said).expect("text");
        assert_ne!(status.code(), Some(0), "{said}");
        let at = format!("the stage {stage} has ended, at {last}");
        let between = format!("the stage {stage} has ended, between two panoramas");
        assert!(
            said.contains(&at) || said.contains(&between),
            "{last}: {said}"
        );
    }
}

fn kill(pid: i32) {
    let done = Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status();
    assert!(done.expect("kill").success());
}
