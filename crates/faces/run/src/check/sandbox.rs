//! The sandbox of a component. Whether the kernel can do it is tried by a launcher.

use super::finder::Finder;
use crate::file::{Calls, Files, Sandbox};
use crate::program::Rights;
use crate::units::{parse_size, parse_time};
use std::path::{Path, PathBuf};
use toml::Spanned;

pub(super) fn rights(
    find: &mut Finder<'_>,
    raw: &Sandbox,
    folder: &Path,
    program: Option<&String>,
) -> Rights {
    let mut read = paths(find, &raw.read, folder);
    // A program that may not be read cannot be run.
    read.extend(program.map(PathBuf::from));
    for id in [&raw.uid, &raw.gid].into_iter().flatten() {
        if *id.get_ref() == u32::MAX {
            find.fault(id, format!("{} is no user or group", u32::MAX));
        }
        if tranship_sys::process::geteuid() != 0 {
            find.fault(
                id,
                format!(
                    "only root starts components of another user; this user is {}",
                    tranship_sys::process::geteuid()
                ),
            );
        }
    }
    Rights {
        read,
        write: paths(find, &raw.write, folder),
        any_file: raw.files == Files::Any,
        network: raw.network,
        any_process: raw.processes,
        any_call: raw.system_calls == Calls::Any,
        uid: raw.uid.as_ref().map(|uid| *uid.get_ref()),
        gid: raw.gid.as_ref().map(|gid| *gid.get_ref()),
        memory: find.unit(raw.limits.memory.as_ref(), parse_size),
        descriptors: raw.limits.descriptors,
        processes: raw.limits.processes,
        file_bytes: find.unit(raw.limits.file_size.as_ref(), parse_size),
        cpu_seconds: find
            .unit(raw.limits.cpu.as_ref(), parse_time)
            .map(|time| time.as_secs().max(1)),
    }
}

fn paths(find: &mut Finder<'_>, raw: &[Spanned<String>], folder: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for path in raw {
        let full = folder.join(path.get_ref());
        match full.canonicalize() {
            Ok(full) => paths.push(full),
            Err(why) => find.fault(path, format!("{}: {why}", full.display())),
        }
    }
    paths
}
