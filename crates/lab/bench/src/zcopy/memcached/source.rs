//! Debian's source package of memcached, built as it is and ported: thirteen changed lines take its values from `zc_malloc` (the editor
//! scripts beside this file).

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the port changes: a script for ed(1) for each file.
const PORT: [(&str, &str); 2] = [
    ("memcached.h", include_str!("memcached.h.ed")),
    ("items.c", include_str!("items.c.ed")),
];
/// Where the package is, if the machine's own lists have no sources.
const DEBIAN: &str = "Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: bookworm\nComponents: main\n\
    Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n";
pub const LIBRARY: &str = "libtranship_zcopy.so";

/// What was built.
#[derive(Debug)]
pub struct Built {
    pub stock: PathBuf,
    pub ported: PathBuf,
    /// The library that the port needs.
    pub library: PathBuf,
}

/// What is there, built if it may be.
pub fn built(folder: &Path, may_build: bool) -> Result<Built> {
    let exe = std::env::current_exe()?;
    let beside = exe.parent().context("no folder")?;
    let built = Built {
        stock: folder.join("stock/memcached"),
        ported: folder.join("ported/memcached"),
        library: beside.join(LIBRARY),
    };
    ensure!(
        built.library.is_file(),
        "no {}: cargo build --release -p tranship-zcopy-preload",
        built.library.display()
    );
    let stamp = folder.join("port");
    let port: String = PORT
        .iter()
        .map(|(file, script)| format!("{file}\n{script}"))
        .collect();
    let is_of_this_port = std::fs::read_to_string(&stamp).is_ok_and(|text| text == port);
    if is_of_this_port && built.stock.is_file() && built.ported.is_file() {
        return Ok(built);
    }
    ensure!(
        may_build,
        "nothing was built in {} yet; without --quick it is, of Debian's source package",
        folder.display()
    );
    std::fs::create_dir_all(folder)?;
    let source = unpacked(folder)?;
    for (name, scripts) in [("stock", &[][..]), ("ported", &PORT[..])] {
        let tree = folder.join(name);
        if tree.exists() {
            std::fs::remove_dir_all(&tree)?;
        }
        say(Command::new("cp").arg("-a").args([&source, &tree]))?;
        for (file, script) in scripts {
            edit(&tree, file, script)?;
        }
        let libraries = match scripts {
            [] => String::new(),
            _ => format!("-L{} -l:{LIBRARY}", beside.display()),
        };
        let mut configure = Command::new("./configure");
        configure
            .args(["--disable-docs", "--disable-coverage"])
            .env("LIBS", libraries);
        // What configure tries runs with the library.
        say(configure.env("LD_LIBRARY_PATH", beside).current_dir(&tree))?;
        say(Command::new("make").arg("memcached").current_dir(&tree))?;
    }
    std::fs::write(stamp, port)?;
    Ok(built)
}

fn edit(tree: &Path, file: &str, script: &str) -> Result<()> {
    let scripted = tree.join(format!("{file}.ed"));
    std::fs::write(&scripted, script)?;
    let mut command = Command::new("ed");
    command.args(["-s", file]).current_dir(tree);
    say_with(&mut command, std::fs::File::open(scripted)?.into())
}

/// The source's folder; fetched if it is not there.
pub(super) fn unpacked(folder: &Path) -> Result<PathBuf> {
    let found = || {
        let all = std::fs::read_dir(folder).ok()?;
        let mut paths = all.filter_map(|entry| Some(entry.ok()?.path()));
        paths.find(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            path.is_dir() && name.is_some_and(|name| name.starts_with("memcached-"))
        })
    };
    if let Some(found) = found() {
        return Ok(found);
    }
    let fetch = |options: &[String]| {
        let mut command = Command::new("apt-get");
        say(command
            .args(options)
            .args(["source", "memcached"])
            .current_dir(folder))
    };
    if fetch(&[]).is_err() {
        // Lists of our own: nothing of the machine's changes.
        let lists = folder.join("lists");
        std::fs::create_dir_all(lists.join("partial"))?;
        let parts = folder.join("parts");
        std::fs::create_dir_all(&parts)?;
        std::fs::write(parts.join("source.sources"), DEBIAN)?;
        let options = [
            "Dir::Etc::SourceList=/dev/null".to_owned(),
            format!("Dir::Etc::SourceParts={}", parts.display()),
            format!("Dir::State::Lists={}", lists.display()),
        ];
        let options: Vec<_> = options
            .into_iter()
            .flat_map(|it| ["-o".to_owned(), it])
            .collect();
        say(Command::new("apt-get").args(&options).arg("update"))?;
        fetch(&options)?;
    }
    found().context("apt-get source left no folder")
}

fn say(command: &mut Command) -> Result<()> {
    say_with(command, Stdio::null())
}

fn say_with(command: &mut Command, input: Stdio) -> Result<()> {
    let output = command.stdin(input).output();
    let output = output.with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let tail: Vec<_> = said.lines().rev().take(3).collect();
    ensure!(
        output.status.success(),
        "{command:?}: {}: {}",
        output.status,
        tail.into_iter().rev().collect::<Vec<_>>().join(" / ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the scripts look for, in words of our own.
    #[test]
    fn the_port_changes_about_ten_lines() {
        let is_there = Command::new("ed").arg("--version").output().is_ok();
        if !is_there {
            return tranship_testkit::skipped("no ed (apt-get install ed)");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let header = "a\n\n#define ITEM_data(item) ((char*) x \\\n + y)\n#define ITEM_ntotal(item) (s \\\n + (item)->nbytes)\n";
        let items = "return sizeof(item) + nkey + nbytes;\nitem *do_item_alloc(char *key,\n const int nbytes) {\n    return it;\n}\n\
            void item_free(item *it) {\n    slabs_free(it);\n}\n";
        for ((file, script), text) in PORT.iter().zip([header, items]) {
            let path = folder.path().join(file);
            std::fs::write(&path, text).expect("written");
            edit(folder.path(), file, script).expect("edited");
            let now = std::fs::read_to_string(&path).expect("text");
            let more = now
                .lines()
                .filter(|line| !text.lines().any(|old| old == *line));
            let more: Vec<_> = more.collect();
            assert!((5..=8).contains(&more.len()), "{file}: {more:?}");
            assert!(more.iter().any(|line| line.contains("zc_free")), "{more:?}");
        }
    }
}
