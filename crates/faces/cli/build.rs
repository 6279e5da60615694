//! A release of the program has the library for `tranship run` in it: `cargo install` installs programs only. Other
//! builds find the one that the workspace has built beside them.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Crates of which the library is made.
const CRATES: [&str; 5] = [
    "heap/preload",
    "heap/malloc",
    "core/proto",
    "base/sys",
    "base/zone",
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_library)");
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("PROFILE").is_none_or(|profile| profile != "release") {
        return;
    }
    for name in CRATES {
        println!("cargo::rerun-if-changed=../../{name}");
    }
    match build() {
        Ok(library) => {
            println!("cargo::rustc-cfg=has_library");
            println!("cargo::rustc-env=TRANSHIP_LIBRARY={}", library.display());
        }
        Err(error) => println!(
            "cargo::warning=libtranship_malloc.so is not in this program, `tranship run` will need it beside it: {error}"
        ),
    }
}

/// Builds in a folder of its own: the cargo that builds this program has locked the workspace's.
fn build() -> Result<PathBuf, String> {
    let var = |name: &str| env::var(name).map_err(|error| format!("{name}: {error}"));
    let (target, out) = (var("TARGET")?, PathBuf::from(var("OUT_DIR")?));
    let root = PathBuf::from(var("CARGO_MANIFEST_DIR")?).join("../../..");
    let out = out.join("library");
    let built = Command::new(var("CARGO")?)
        .args(["build", "--quiet", "--release", "--locked"])
        .args(["--package", "tranship-preload", "--target", &target])
        .arg("--target-dir")
        .arg(&out)
        .current_dir(root)
        // A lint's compiler makes no libraries.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    let library = out.join(target).join("release/libtranship_malloc.so");
    match built.success() && library.exists() {
        true => Ok(library),
        false => Err(format!("cargo build --package tranship-preload: {built}")),
    }
}
