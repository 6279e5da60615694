//! The library as others find it: its symbols, its name, its header in C and C++, pkg-config, CMake, the manual.

mod common;

use common::{STRICT, flags, good, has, installed, pkg_config, runs, source};
use std::collections::BTreeSet;
use std::process::Command;
use tranship_testkit::{Said, Watchdog};

/// The functions that a text of C declares.
fn declared(header: &str) -> BTreeSet<String> {
    let starts = |line: &&str| {
        line.starts_with(|c: char| c.is_ascii_lowercase()) && !line.starts_with("static")
    };
    let name = |line: &str| {
        let before = line.split_once('(')?.0;
        let name = before.rsplit([' ', '*']).next()?;
        name.starts_with("tranship_").then(|| name.to_owned())
    };
    header.lines().filter(starts).filter_map(name).collect()
}

#[test]
fn it_shows_what_the_header_declares_and_nothing_else() {
    let _dog = Watchdog::new();
    if !has("nm", "binutils") {
        return;
    }
    let mut wanted = BTreeSet::new();
    for header in [
        "tranship.h",
        "tranship/admin.h",
        "tranship/component.h",
        "tranship/mbufs.h",
        "tranship/queue.h",
        "tranship/service.h",
        "tranship/topic.h",
        "tranship/zones.h",
    ] {
        let header = installed().join("include").join(header);
        wanted.extend(declared(
            &std::fs::read_to_string(header).expect("a header"),
        ));
    }
    assert!(wanted.len() > 130, "{wanted:?}");
    let library = installed().join("lib/libtranship.so");
    let mut nm = Command::new("nm");
    nm.args(["-D", "--defined-only"]).arg(library);
    let mut shown = BTreeSet::new();
    for line in good(&mut nm).lines() {
        let symbol = line.split(' ').nth(2).expect("a symbol");
        match symbol.split_once("@@") {
            Some((name, version)) => {
                assert_eq!(version, "TRANSHIP_0", "{line}");
                shown.insert(name.to_owned());
            }
            None => assert_eq!(symbol, "TRANSHIP_0", "{line}"),
        }
    }
    assert_eq!(shown, wanted);
}

#[test]
fn programs_ask_for_it_by_its_abi() {
    let _dog = Watchdog::new();
    if !has("readelf", "binutils") {
        return;
    }
    let library = installed().join("lib/libtranship.so");
    let said = good(Command::new("readelf").arg("-d").arg(library));
    assert!(said.contains("soname: [libtranship.so.0]"), "{said}");
    // What it needs is what every system has.
    let needed = said.lines().filter(|line| line.contains("(NEEDED)"));
    for line in needed {
        let may = ["libc.so.6", "libgcc_s.so.1", "libm.so.6", "ld-linux"];
        assert!(may.iter().any(|name| line.contains(name)), "{line}");
    }
}

/// The header alone, with nothing before it.
fn accepts(compiler: &str, language: &str, standard: &str) {
    let mut flags: Vec<&str> = STRICT.to_vec();
    let header = source("tests/programs/header.c");
    let include = source("include");
    flags.extend(["-fsyntax-only", "-x", language]);
    good(
        Command::new(compiler)
            .args(flags)
            .arg(format!("-std={standard}"))
            .arg("-I")
            .arg(include)
            .arg(header),
    );
}

#[test]
fn c_and_cpp_compile_the_headers() {
    let _dog = Watchdog::new();
    for (c, cpp, package) in [("gcc", "g++", "g++"), ("clang", "clang++", "clang")] {
        if !has(cpp, package) {
            continue;
        }
        for standard in ["c99", "c11", "c17"] {
            accepts(c, "c", standard);
        }
        for standard in ["c++11", "c++17", "c++20"] {
            accepts(cpp, "c++", standard);
        }
    }
}

#[test]
fn pkg_config_says_how_to_link_with_it() {
    let _dog = Watchdog::new();
    if !has("pkg-config", "pkg-config") {
        return;
    }
    let workspace = std::fs::read_to_string(source("../../../Cargo.toml")).expect("Cargo.toml");
    let version = pkg_config(&["--modversion"]).concat();
    assert!(
        workspace.contains(&format!("version = \"{version}\"")),
        "{version}"
    );
    // Linked with the shared one, and with the static one alone.
    let program = installed().join("by-pkg-config");
    let archive = installed().join("lib/libtranship.a").display().to_string();
    let mut alone = pkg_config(&["--cflags", "--libs", "--static"]);
    for flag in &mut alone {
        if flag == "-ltranship" {
            flag.clone_from(&archive);
        }
    }
    for flags in [pkg_config(&["--cflags", "--libs"]), alone] {
        good(
            Command::new("cc")
                .args(["-std=c11", "-pthread", "-o"])
                .arg(&program)
                .arg(source("examples/move.c"))
                .args(&flags),
        );
        let mut run = Command::new(&program);
        run.env("LD_LIBRARY_PATH", installed().join("lib"));
        good(&mut run);
    }
}

#[test]
fn cmake_finds_it() {
    let _dog = Watchdog::new();
    if !has("cmake", "cmake") || !has("make", "make") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let lists = format!(
        "cmake_minimum_required(VERSION 3.13)\nproject(app C)\nfind_package(tranship 0.1 REQUIRED)\n\
         find_package(Threads REQUIRED)\nadd_executable(app {})\n\
         target_link_libraries(app tranship::tranship Threads::Threads)\n",
        source("examples/move.c").display()
    );
    std::fs::write(folder.path().join("CMakeLists.txt"), lists).expect("write");
    let configure = |wanted: &str| {
        let mut cmake = Command::new("cmake");
        cmake.args(["-S", ".", "-B"]).arg(format!("build{wanted}"));
        cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", installed().display()));
        Said::of(cmake.current_dir(folder.path()))
    };
    configure("").well();
    let mut cmake = Command::new("cmake");
    cmake.args(["--build", "build"]).current_dir(folder.path());
    good(&mut cmake);
    runs(&folder.path().join("build/app"));
    // One that it is not.
    let lists = folder.path().join("CMakeLists.txt");
    let text = std::fs::read_to_string(&lists).expect("read");
    std::fs::write(&lists, text.replace("tranship 0.1", "tranship 0.2")).expect("write");
    assert_ne!(configure("2").code, Some(0), "0.1 was taken for 0.2");
}

#[test]
fn what_was_not_built_is_not_installed() {
    let _dog = Watchdog::new();
    let folder = tempfile::tempdir().expect("a folder");
    let mut install = Command::new(source("../../../scripts/install.sh"));
    install.env("TARGET", folder.path()).env_remove("LINKED");
    let said = Said::of(install.env("DESTDIR", folder.path().join("tree")));
    said.ends(1, &["make library"]);
    assert!(!folder.path().join("tree").exists());
}

/// As `man tranship_send` looks for it.
#[test]
fn each_function_has_a_page_by_its_name() {
    let _dog = Watchdog::new();
    let manual = installed().join("share/man");
    for header in [
        "tranship.h",
        "tranship/admin.h",
        "tranship/mbufs.h",
        "tranship/zones.h",
    ] {
        let header = installed().join("include").join(header);
        let header = std::fs::read_to_string(header).expect("a header");
        for function in declared(&header) {
            let page = manual.join(format!("man3/{function}.3"));
            let mut text = std::fs::read_to_string(&page).expect(&function);
            if let Some(other) = text.strip_prefix(".so ") {
                text = std::fs::read_to_string(manual.join(other.trim_end())).expect(&function);
            }
            assert!(text.contains(&format!(".SS {function}()\n")), "{function}");
        }
    }
    assert!(manual.join("man3/tranship.3").exists());
}

#[test]
fn the_manual_can_be_read() {
    let _dog = Watchdog::new();
    let manual = installed().join("share/man");
    let pages = std::fs::read_dir(manual.join("man3"));
    let pages = pages.expect("pages").flatten();
    let pages: Vec<_> = pages.map(|page| page.path()).collect();
    assert!(pages.len() >= 11, "{pages:?}");
    if !has("groff", "groff") {
        return;
    }
    for page in pages {
        let mut groff = Command::new("groff");
        groff.args(["-man", "-Tutf8", "-ww", "-z"]).arg(&page);
        let said = Said::of(groff.current_dir(&manual));
        said.ends(0, &[]);
        assert_eq!(said.err, "", "{}", page.display());
    }
}

/// The programs in C of a page.
fn shown(page: &std::path::Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).expect("a page");
    let parts = text.split("\n```c\n").skip(1);
    parts
        .filter_map(|rest| Some(rest.split("```").next()?.to_owned()))
        .collect()
}

/// A block that is no program is marked as text.
#[test]
fn what_the_documentation_shows_compiles() {
    let _dog = Watchdog::new();
    let readme = shown(&source("../../../README.md"));
    assert!(!readme.is_empty(), "the README shows no C");
    assert!(readme.iter().all(|text| text.lines().count() <= 16));
    let pages = std::fs::read_dir(source("../../../docs")).expect("docs");
    let pages = pages.flatten().map(|page| page.path());
    let pages = pages.filter(|page| page.extension().is_some_and(|ending| ending == "md"));
    for text in readme
        .into_iter()
        .chain(pages.flat_map(|page| shown(&page)))
    {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("readme.c");
        std::fs::write(&file, text).expect("write");
        let program = folder.path().join("readme");
        good(
            Command::new("cc")
                .args(STRICT)
                .arg("-o")
                .arg(program)
                .arg(&file)
                .args(flags()),
        );
    }
}
