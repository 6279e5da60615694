//! What a test needs and cargo does not build for it: the library of a package that cannot be linked with, or another
//! package's program.

use std::path::PathBuf;
use std::process::Command;

/// Builds a package of this workspace, in the profile of the calling test, and says where its file is.
///
/// # Panics
/// When it cannot be built, or has no such file.
#[must_use]
pub fn artifact(package: &str, file: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test's path");
    // target/PROFILE/deps/test
    let folder = test.ancestors().nth(2).expect("a profile's folder");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args([
            "build",
            "--quiet",
            "--package",
            package,
            "--profile",
            profile,
        ])
        .arg("--target-dir")
        .arg(folder.parent().expect("a target folder"))
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let status = crate::prepare(|| command.status()).expect("running cargo");
    assert!(status.success(), "building {package}: {status}");
    let path = folder.join(file);
    assert!(path.is_file(), "{} is not there", path.display());
    path
}
