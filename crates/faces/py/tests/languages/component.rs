//! A program with a component in each language: `examples/27_languages.toml`.

use super::super::stage::{compiled, here, staged};
use std::path::Path;
use tranship::component::{Component, VARIABLE};
use tranship_testkit::{Said, Watchdog, folder, has, tranship};

const FRAMES: u8 = 100;
const FRAME: usize = 4000;

/// Runs a program of this text in this folder; what it says is to have these words.
fn run(folder: &Path, text: &str, words: &str) {
    let file = folder.join("program.toml");
    std::fs::write(&file, text).expect("a file");
    let mut run = tranship(&["run"]);
    let said = Said::of(run.arg(file).env("XDG_RUNTIME_DIR", folder));
    has(&said.well(), &[words]);
}

/// The camera of the program below; alone it does nothing.
#[test]
fn camera() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let component = Component::connect().expect("a component");
    let mut frames = component.sender("frames").expect("an end");
    for number in 0..FRAMES {
        let mut frame = frames.alloc(FRAME).expect("memory");
        frame.fill(number);
        frames.send(frame.freeze()).expect("sent");
    }
    frames.finish().expect("taken");
}

#[test]
fn a_program_has_a_component_in_each_language() {
    let Some(stage) = staged() else { return };
    let _dog = Watchdog::within(super::super::stage::HOUR);
    let folder = folder().expect("a folder");
    let file = std::fs::read_to_string(here("../../../examples/27_languages.toml"));
    // A copy: a build beside the test, as `pip install` starts one, may replace this program's file.
    let test = folder.path().join("test");
    std::fs::copy("/proc/self/exe", &test).expect("a copy");
    let relay = compiled("../capi/examples/component.c", folder.path());
    let display = here("../../../examples/python/component.py");
    let mut file = file.expect("the example");
    for (run, with) in [
        (
            r#"["27_components", "camera"]"#,
            format!("[{test:?}, \"--exact\", \"languages::component::camera\", \"--nocapture\"]"),
        ),
        (
            r#"["component"]"#,
            format!("[{relay:?}]\nsandbox.files = \"any\""),
        ),
        (
            r#"["python3", "python/component.py"]"#,
            format!(
                "[{:?}, {display:?}]\nenv = {{ PYTHONPATH = {:?}, PYTHONDONTWRITEBYTECODE = \"1\" }}",
                stage.python, stage.package
            ),
        ),
    ] {
        assert!(file.contains(run), "{run}");
        file = file.replace(run, &with);
    }
    file += "\n[manager.pressure]\nwatch = false\n";
    let wanted = format!("{} bytes came through three languages\n", 100 * FRAME);
    run(folder.path(), &file, &wanted);
}

const SQUARES: &str = r#"
import tranship.mp as mp

def work(numbers, squares):
    while (number := numbers.get()) is not None:
        squares.put(number * number)

if __name__ == "__main__":
    numbers, squares = mp.Queue(), mp.Queue()
    worker = mp.Process(target=work, args=(numbers, squares), daemon=True)
    worker.start()
    numbers.put(12)
    print("the square is", squares.get(), flush=True)
    numbers.put(None)
    worker.join()
"#;

/// The program's manager lets the component have no name, so queues are at a manager of its own.
#[test]
fn a_component_has_processes_and_queues_of_its_own() {
    let Some(stage) = staged() else { return };
    let _dog = Watchdog::within(super::super::stage::HOUR);
    let folder = folder().expect("a folder");
    let file = format!(
        "[component.a]\nrun = [{:?}, \"squares.py\"]\nenv = {{ PYTHONPATH = {:?}, PYTHONDONTWRITEBYTECODE = \"1\" }}\nsandbox.files = \"any\"\nrestart = \"never\"\n[manager.pressure]\nwatch = false\n",
        stage.python, stage.package
    );
    std::fs::write(folder.path().join("squares.py"), SQUARES).expect("a file");
    run(folder.path(), &file, "the square is 144");
}
