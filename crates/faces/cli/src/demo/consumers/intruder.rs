//! A consumer that tries to write into the frames it was sent. It is not locked down: the memory itself refuses it. Its
//! writer has sealed it, so that no mapping but the writer's own can ever be a writable one.
#![allow(unsafe_code)] // the attempts are raw calls on purpose

use super::work::{Outcome, Work};
use anyhow::Result;
use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Intruder {
    refused: Vec<String>,
    succeeded: Vec<String>,
    frames: u64,
}

impl Work for Intruder {
    fn frame(&mut self, _offset: u64, bytes: &[u8]) -> Result<()> {
        self.frames += 1;
        if self.frames > 1 || bytes.len() < 2 * PAGE {
            return Ok(());
        }
        let before = blake3::hash(bytes);
        let page = bytes.as_ptr().map_addr(|at| at.next_multiple_of(PAGE));
        for (what, attempt) in ATTEMPTS {
            match attempt(page.cast_mut().cast()) {
                Ok(()) => self.succeeded.push((*what).to_owned()),
                Err(error) => self.refused.push(format!("{what}: {error}")),
            }
        }
        if blake3::hash(bytes) != before {
            self.succeeded.push("the frame has other bytes".to_owned());
        }
        Ok(())
    }

    fn outcome(&mut self) -> Result<Outcome> {
        Ok(Outcome::Intruder {
            refused: std::mem::take(&mut self.refused),
            succeeded: std::mem::take(&mut self.succeeded),
        })
    }
}

/// An attempt on the page that begins there.
type Attempt = fn(*mut c_void) -> io::Result<()>;

const ATTEMPTS: &[(&str, Attempt)] = &[
    ("mprotect", protect),
    ("mprotect of a second mapping", protect_copy),
    ("write to /proc/self/mem", write_mem),
    ("process_vm_writev", write_vm),
    ("read() into it", read_into),
    ("madvise(MADV_REMOVE)", remove),
    ("reopen and map writable", |page| {
        map_writable(&reopen(page)?)
    }),
    ("reopen and write", |page| {
        reopen(page)?.write_all_at(&[0xff; 8], 0)
    }),
    ("reopen and truncate", |page| {
        Ok(ftruncate(reopen(page)?, 0)?)
    }),
    ("reopen and punch a hole", |page| {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(reopen(page)?, punch, 0, PAGE as u64)?)
    }),
];

fn protect(page: *mut c_void) -> io::Result<()> {
    // SAFETY: changes the protection of a page of this process; nothing is written.
    Ok(unsafe { rustix::mm::mprotect(page, PAGE, MprotectFlags::READ | MprotectFlags::WRITE) }?)
}

fn protect_copy(page: *mut c_void) -> io::Result<()> {
    // SAFETY: an old length of 0 maps the same page a second time, elsewhere, and leaves the first alone.
    let copy = unsafe { rustix::mm::mremap(page, 0, PAGE, MremapFlags::MAYMOVE) }?;
    let answer = protect(copy);
    // SAFETY: the mapping that was just made; nothing points into it.
    let _ = unsafe { rustix::mm::munmap(copy, PAGE) };
    answer
}

fn write_mem(page: *mut c_void) -> io::Result<()> {
    let mem = File::options()
        .read(true)
        .write(true)
        .open("/proc/self/mem")?;
    mem.write_all_at(&[0xff; 8], page.addr() as u64)
}

fn write_vm(page: *mut c_void) -> io::Result<()> {
    let bytes = [0xffu8; 8];
    let from = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let to = libc::iovec {
        iov_base: page,
        iov_len: bytes.len(),
    };
    let pid = std::process::id().cast_signed();
    // SAFETY: the kernel checks that the target may be written; if it may, this program reports exactly that.
    let written = unsafe { libc::process_vm_writev(pid, &raw const from, 1, &raw const to, 1, 0) };
    done(written)
}

fn read_into(page: *mut c_void) -> io::Result<()> {
    let zero = File::open("/dev/zero")?;
    // SAFETY: as for `write_vm`.
    let read = unsafe { libc::read(std::os::fd::AsRawFd::as_raw_fd(&zero), page, 8) };
    done(read)
}

fn remove(page: *mut c_void) -> io::Result<()> {
    // SAFETY: would free the page in every process; the contents are only reported on.
    Ok(unsafe { rustix::mm::madvise(page, PAGE, Advice::LinuxRemove) }?)
}

/// Opens the memory behind the page for reading and writing (root can).
fn reopen(page: *mut c_void) -> io::Result<File> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let has = |range: &str| {
        let (start, end) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        (address(start)?..address(end)?)
            .contains(&page.addr())
            .then_some(())
    };
    let range = maps
        .lines()
        .filter_map(|line| line.split(' ').next())
        .find(|range| has(range).is_some());
    let range = range.ok_or(io::ErrorKind::NotFound)?;
    File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/self/map_files/{range}"))
}

fn map_writable(file: &File) -> io::Result<()> {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a fresh mapping, at an address of the kernel's choice; it stays unused.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), PAGE, prot, flags, file, 0) }?;
    Ok(())
}

fn done(bytes: isize) -> io::Result<()> {
    if bytes < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_shared_memory_falls_to_every_writing_attempt() {
        // A control, so that a list of refusals means something.
        let memfd = rustix::fs::memfd_create("open", rustix::fs::MemfdFlags::CLOEXEC);
        let memfd = File::from(memfd.expect("a memfd"));
        memfd.set_len(PAGE as u64).expect("a page");
        let (prot, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: a fresh mapping.
        let page = unsafe { rustix::mm::mmap(std::ptr::null_mut(), PAGE, prot, flags, &memfd, 0) }
            .expect("a mapping");
        for attempt in [protect_copy, protect, write_mem, write_vm, read_into] {
            attempt(page).expect("what nobody refuses");
        }
        map_writable(&memfd).expect("a writable mapping");
    }
}
