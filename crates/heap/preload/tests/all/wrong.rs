//! Blocks that are freed twice, in the middle, or after they were freed: the program ends at the second time, at every
//! size, and no block has two owners.

use crate::common;
use crate::common::{Stage, dog};
use libc::c_void;
use std::ffi::CString;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::ptr;
use tranship_testkit::{Control, child, skipped};

/// Finds a function by its name: not every C library has all of them.
fn named(name: &str) -> *mut c_void {
    let name = CString::new(name).expect("no zero");
    // SAFETY: a string that ends in 0.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

fn free_sized(address: *mut c_void, bytes: usize) {
    type FreeSized = unsafe extern "C" fn(*mut c_void, usize);
    let at = named("free_sized");
    assert!(!at.is_null());
    // SAFETY: C23's function of that name; the callers choose the block to free.
    unsafe { std::mem::transmute::<*mut c_void, FreeSized>(at)(address, bytes) };
}

/// valloc(3) and pvalloc(3).
fn pages(name: &str, bytes: usize) -> *mut c_void {
    type Alloc = unsafe extern "C" fn(usize) -> *mut c_void;
    // SAFETY: the C library's function of that name.
    unsafe { std::mem::transmute::<*mut c_void, Alloc>(named(name))(bytes) }
}

/// Up to the largest slab, pages, and mappings.
const SIZES: [usize; 18] = [
    0,
    1,
    16,
    17,
    40,
    64,
    100,
    512,
    1000,
    2048,
    4096,
    5000,
    32_768,
    40_000,
    100_000,
    1_000_000,
    1 << 20,
    3_000_000,
];

type Case = (&'static str, fn(usize));

fn two(bytes: usize) -> [*mut c_void; 2] {
    // SAFETY: asks for memory, and writes no more than it got.
    unsafe {
        [0xa5, 0x5a].map(|byte| {
            let block = libc::malloc(bytes);
            assert!(!block.is_null());
            libc::memset(block, byte, bytes);
            block
        })
    }
}

/// Calls that must not return. Each of them frees memory that is not allocated, which is under test: everything else in
/// them is in order.
const CASES: [Case; 14] = [
    ("free(a); free(b); free(a)", |bytes| {
        let [a, b] = two(bytes);
        // SAFETY: see above.
        unsafe {
            for block in [a, b, a] {
                libc::free(block);
            }
        };
    }),
    ("free(a); free(a)", |bytes| {
        let [a, _] = two(bytes);
        // SAFETY: see above.
        unsafe {
            for block in [a, a] {
                libc::free(block);
            }
        };
    }),
    ("free(a); free_sized(a)", |bytes| {
        let [a, _] = two(bytes);
        // SAFETY: see above.
        unsafe {
            libc::free(a);
            free_sized(a, bytes);
        }
    }),
    ("free(a); realloc(a, more)", |bytes| {
        let [a, b] = two(bytes);
        // SAFETY: see above.
        unsafe {
            libc::free(a);
            libc::free(b);
            libc::realloc(a, 2 * bytes + 100);
        }
    }),
    ("free(a); realloc(a, the same)", |bytes| {
        let [a, _] = two(bytes);
        // SAFETY: see above.
        unsafe {
            libc::free(a);
            libc::realloc(a, bytes.max(1));
        }
    }),
    ("free(a); realloc(a, 0)", |bytes| {
        let [a, _] = two(bytes);
        // SAFETY: see above.
        unsafe {
            libc::free(a);
            libc::realloc(a, 0);
        }
    }),
    ("free(a + 8)", |bytes| {
        let [a, _] = two(bytes);
        // SAFETY: see above.
        unsafe { libc::free(a.wrapping_byte_add(8)) };
    }),
    ("free(a + half)", |bytes| {
        let [a, _] = two(bytes.max(32));
        let half = (bytes / 2).next_multiple_of(16).max(16);
        // SAFETY: see above.
        unsafe { libc::free(a.wrapping_byte_add(half)) };
    }),
    ("another thread frees it, then this one", |bytes| {
        let a = two(bytes)[0].expose_provenance();
        let free = move || {
            // SAFETY: see above.
            unsafe { libc::free(ptr::with_exposed_provenance_mut(a)) };
        };
        let other = std::thread::spawn(free);
        other.join().expect("it ends");
        free();
    }),
    ("free(a); malloc_trim(0); free(a)", |bytes| {
        let [a, _] = two(bytes);
        // SAFETY: see above.
        unsafe {
            libc::free(a);
            libc::malloc_trim(0);
            libc::free(a);
        }
    }),
    ("aligned to 64", |bytes| aligned_twice(bytes, 64)),
    ("aligned to a page", |bytes| aligned_twice(bytes, 4096)),
    ("aligned to 64 KiB", |bytes| aligned_twice(bytes, 64 << 10)),
    ("aligned to 4 MiB", |bytes| aligned_twice(bytes, 4 << 20)),
];

fn aligned_twice(bytes: usize, align: usize) {
    // SAFETY: see above.
    unsafe {
        let [a, b] = [0, 0].map(|_| {
            let mut block = ptr::null_mut();
            assert_eq!(libc::posix_memalign(&raw mut block, align, bytes), 0);
            block
        });
        for block in [a, b, a] {
            libc::free(block);
        }
    }
}

/// Runs a case in a forked child; returns how it ended, and its output.
fn play((_, case): Case, bytes: usize) -> (i32, String) {
    let (mut said, tell) = std::io::pipe().expect("a pipe");
    // SAFETY: the child uses nothing that another thread may hold but the allocator, and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: descriptors of the child's own; ends it.
        unsafe {
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&tell), 2);
            case(bytes);
            libc::_exit(0);
        }
    }
    drop(tell);
    let mut text = String::new();
    said.read_to_string(&mut text).expect("text");
    let mut status = 0;
    // SAFETY: a child of ours, and a word of ours.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    (status, text)
}

child!(
    /// Plays all cases of all sizes; reports those that did not abort with a line that says why.
    fn misuser(ctl: Control) -> Result<(), String> {
        let mut survived = Vec::new();
        for case in CASES {
            for bytes in SIZES {
                let (status, text) = play(case, bytes);
                let aborted = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
                if !aborted || !text.starts_with("tranship: 0x") || text.lines().count() != 1 {
                    survived.push(format!("{}, {bytes} bytes: {status:#x} {text}", case.0));
                }
            }
        }
        survived.truncate(40);
        ctl.send(&survived).map_err(|e| e.to_string())
    }
);

#[test]
fn what_is_freed_twice_ends_the_program_at_the_second_time() {
    let _dog = dog();
    let stage = Stage::new(4096 * common::MIB);
    let peer = stage.under(misuser()).start().expect("start");
    let survived: Vec<String> = peer.expect();
    assert!(survived.is_empty(), "{survived:#?}");
}

child!(
    /// Correct use still works: blocks of all functions, freed once by another thread or this one, and queried.
    fn user(ctl: Control) -> Result<(), String> {
        for bytes in SIZES {
            let [a, b] = two(bytes);
            // SAFETY: allocated blocks are freed once, and not used after; sizes are the requested ones.
            unsafe {
                assert!(libc::malloc_usable_size(a) >= bytes);
                assert_eq!(libc::malloc_usable_size(a.wrapping_byte_add(1)), 0);
                let address = a.expose_provenance();
                std::thread::spawn(move || libc::free(ptr::with_exposed_provenance_mut(address)))
                    .join()
                    .expect("it ends");
                assert_eq!(libc::malloc_usable_size(a), 0);
                libc::free(libc::realloc(b, bytes + 5000));
                free_sized(libc::calloc(3, bytes), 3 * bytes);
                libc::free(ptr::null_mut());
                for page in ["valloc", "pvalloc"].map(|name| pages(name, bytes)) {
                    assert_eq!(page.addr() % 4096, 0);
                    libc::free(page);
                }
            }
        }
        ctl.send(&true).map_err(|e| e.to_string())
    }
);

/// All exported names of the GNU C library's allocator, and C23's: a block of one function can be freed by another.
const NAMES: [&str; 28] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "reallocarray",
    "aligned_alloc",
    "posix_memalign",
    "memalign",
    "valloc",
    "pvalloc",
    "free_sized",
    "free_aligned_sized",
    "malloc_usable_size",
    "malloc_trim",
    "malloc_stats",
    "malloc_info",
    "mallopt",
    "mallinfo",
    "mallinfo2",
    "cfree",
    "__libc_malloc",
    "__libc_free",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "__libc_valloc",
    "__libc_pvalloc",
    "__libc_mallopt",
];

child!(
    /// Reports the names of functions that belong to another library.
    fn asker(ctl: Control) -> Result<(), String> {
        let is_ours = |name: &&str| {
            // SAFETY: words of this test; the pointer leads to a path that ends in 0.
            unsafe {
                let mut found: libc::Dl_info = std::mem::zeroed();
                libc::dladdr(named(name), &raw mut found) != 0
                    && std::ffi::CStr::from_ptr(found.dli_fname)
                        .to_bytes()
                        .ends_with(b"/libtranship_malloc.so")
            }
        };
        let others: Vec<&str> = NAMES
            .iter()
            .copied()
            .filter(|name| !is_ours(name))
            .collect();
        ctl.send(&others).map_err(|e| e.to_string())
    }
);

#[test]
fn all_functions_of_an_allocator_are_the_librarys() {
    let _dog = dog();
    let stage = Stage::new(4096 * common::MIB);
    let peer = stage.under(asker()).start().expect("start");
    let others: Vec<String> = peer.expect();
    assert!(others.is_empty(), "of another library: {others:?}");
}

#[test]
fn what_is_freed_once_is_in_order() {
    let _dog = dog();
    let stage = Stage::new(4096 * common::MIB);
    let peer = stage.under(user()).start().expect("start");
    assert!(peer.expect::<bool>());
}

/// The ways to free an array twice; without an argument it is freed once.
const DELETES: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
struct alignas(256) Wide { char bytes[256]; };
template <typename T> void go(int twice, T* a, T* b) {
    delete a;
    delete b;
    if (twice) delete a;
}
int main(int argc, char** argv) {
    int twice = argc > 2, way = atoi(argv[1]);
    if (way == 0) go(twice, new int, new int);
    if (way == 1) go(twice, new Wide, new Wide);
    if (way == 2) {
        char *a = new char[5000], *b = new char[5000];
        delete[] a;
        delete[] b;
        if (twice) delete[] a;
    }
    if (way == 3) {
        void *a = ::operator new(40), *b = ::operator new(40);
        ::operator delete(a, (std::size_t)40);
        ::operator delete(b, (std::size_t)40);
        if (twice) ::operator delete(a, (std::size_t)40);
    }
    puts("done");
}
"#;

#[test]
fn c_plus_plus_deletes_twice_no_more() {
    let _dog = dog();
    let folder = tranship_testkit::folder().expect("a folder");
    let program = folder.path().join("deletes");
    let compiler = Command::new("g++")
        .args(["-std=c++17", "-w", "-O0", "-x", "c++", "-o"])
        .arg(&program)
        .arg("-")
        .stdin(Stdio::piped())
        .spawn();
    let mut compiler = match compiler {
        Ok(compiler) => compiler,
        Err(error) => return skipped(format!("no g++: {error}")),
    };
    let mut input = compiler.stdin.take().expect("a pipe");
    input.write_all(DELETES.as_bytes()).expect("written");
    drop(input);
    assert!(compiler.wait().expect("g++").success());
    let stage = Stage::new(4096 * common::MIB);
    for way in ["0", "1", "2", "3"] {
        let once = stage.command(&program).arg(way).output().expect("run");
        assert!(once.status.success(), "{way}: {once:?}");
        let twice = stage
            .command(&program)
            .args([way, "twice"])
            .output()
            .expect("run");
        assert_eq!(
            twice.status.signal(),
            Some(libc::SIGABRT),
            "{way}: {twice:?}"
        );
        assert!(
            twice.stderr.starts_with(b"tranship: 0x"),
            "{way}: {twice:?}"
        );
    }
}
