//! A program with a component in each language: `examples/27_languages.toml`.

use super::super::stage::{compiled, here, stage};
use std::process::{Command, Stdio};
use tranship::component::{Component, VARIABLE};
use tranship_testkit::{Watchdog, artifact, skipped};

const FRAMES: u8 = 100;
const FRAME: usize = 4000;

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
    let stage = match stage() {
        Ok(stage) => stage,
        Err(why) => return skipped(why),
    };
    let _dog = Watchdog::within(super::super::stage::HOUR);
    let folder = tranship_testkit::folder().expect("a folder");
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
    let path = folder.path().join("27_languages.toml");
    std::fs::write(&path, file).expect("a file");
    let output = Command::new(artifact("tranship-cli", "tranship"))
        .arg("run")
        .arg(&path)
        .stdin(Stdio::null())
        .env("XDG_RUNTIME_DIR", folder.path())
        .env_remove("TRANSHIP_SOCKET")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let wanted = format!("{} bytes came through three languages\n", 100 * FRAME);
    assert!(
        output.status.success() && said.contains(&wanted),
        "{output:?}"
    );
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
    let stage = match stage() {
        Ok(stage) => stage,
        Err(why) => return skipped(why),
    };
    let _dog = Watchdog::within(super::super::stage::HOUR);
    let folder = tranship_testkit::folder().expect("a folder");
    let file = format!(
        "[component.a]\nrun = [{:?}, \"squares.py\"]\nenv = {{ PYTHONPATH = {:?}, PYTHONDONTWRITEBYTECODE = \"1\" }}\nsandbox.files = \"any\"\nrestart = \"never\"\n[manager.pressure]\nwatch = false\n",
        stage.python, stage.package
    );
    let path = folder.path().join("squares.toml");
    std::fs::write(&path, file).expect("a file");
    std::fs::write(folder.path().join("squares.py"), SQUARES).expect("a file");
    let output = Command::new(artifact("tranship-cli", "tranship"))
        .arg("run")
        .arg(&path)
        .stdin(Stdio::null())
        .env("XDG_RUNTIME_DIR", folder.path())
        .env_remove("TRANSHIP_SOCKET")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("the square is 144"),
        "{output:?}"
    );
}
