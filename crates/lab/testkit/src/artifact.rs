//! Artifacts that a test needs and cargo does not build for it: the library of a package that cannot be linked with, or
//! another package's program.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds a package of this workspace, in the profile of the calling test, and says where its file is. With
/// `TRANSHIP_BUILT` set it is there already (`scripts/tests.sh` builds everything at once: a package alone has other
/// features, and so takes a build of its own).
///
/// # Panics
/// When it cannot be built, or has no such file.
#[must_use]
pub fn artifact(package: &str, file: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test's path");
    // target/PROFILE/deps/test
    let folder = test.ancestors().nth(2).expect("a profile's folder");
    let path = folder.join(file);
    // A build of a wheel moves a library away for a moment, but for the one in `deps`.
    let mut built = [path.clone(), folder.join("deps").join(file)].into_iter();
    if std::env::var_os("TRANSHIP_BUILT").is_some()
        && let Some(path) = built.find(|path| path.is_file())
    {
        return path;
    }
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
    forget_who_asks(&mut command);
    let status = crate::prepare(|| command.status()).expect("running cargo");
    assert!(status.success(), "building {package}: {status}");
    assert!(path.is_file(), "{} is not there", path.display());
    path
}

/// Returns where the program `tranship` is.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| artifact("tranship-cli", "tranship"))
}

/// Removes the variables by which cargo describes the test's own package. Build scripts of dependencies look at these
/// variables (`ring`'s does). With them each package's tests would build these dependencies, and all that depends on
/// them, anew.
pub fn forget_who_asks(command: &mut Command) {
    let about_me = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| about_me.iter().any(|start| name.starts_with(start))) {
        command.env_remove(name);
    }
    for name in ["CARGO_CRATE_NAME", "CARGO_TARGET_TMPDIR", "OUT_DIR"] {
        command.env_remove(name);
    }
}
