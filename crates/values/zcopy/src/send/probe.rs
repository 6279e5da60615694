//! Check whether this kernel refers to pages that are given to vmsplice(2), or copies them. If it copies, vmsplice(2) is
//! not used.
//!
//! A file's page goes into a pipe, the file is written, and the pipe is read. New bytes come out if the pipe refers to
//! the page.

use crate::kernel::pipe;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use tranship_sys::map::{self, Access};
use tranship_sys::memfd;

/// Returns whether vmsplice(2) refers to pages. Tried once a process.
pub(super) fn vmsplice_refers() -> bool {
    static REFERS: OnceLock<bool> = OnceLock::new();
    *REFERS.get_or_init(|| {
        refers(|pipe, page| {
            // SAFETY: mapped for the length of the call. Its bytes change, and only `refers` sees that.
            unsafe { pipe::vmsplice(pipe, page) }
        })
        .unwrap_or(false)
    })
}

/// Returns whether bytes that were put into a pipe change with their page.
fn refers(put: impl FnOnce(&File, &[(*const u8, usize)]) -> io::Result<usize>) -> io::Result<bool> {
    const LEN: usize = 4096;
    let (read, write) = pipe::nonblocking()?;
    let file = File::from(memfd::create("tranship-zcopy-probe")?);
    file.write_all_at(&[0; LEN], 0)?;
    let page = map::map_shared(&file, Access::Read, LEN, 0)?;
    let done = put(&File::from(write), &[(page.as_ptr().cast_const(), LEN)]);
    // SAFETY: the mapping of just now; the pipe keeps its page.
    unsafe { map::unmap(page, LEN)? };
    done?;
    file.write_all_at(&[1], 0)?;
    let mut byte = [0];
    File::from(read).read_exact(&mut byte)?;
    Ok(byte == [1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_kernel_that_copies_is_told_from_one_that_refers() {
        let copied = refers(|mut pipe, page| {
            // SAFETY: mapped for the length of the call.
            pipe.write(unsafe { std::slice::from_raw_parts(page[0].0, page[0].1) })
        });
        assert!(!copied.expect("a pipe"));
        let referred = refers(|pipe, page| {
            // SAFETY: as in `vmsplice_refers`.
            unsafe { pipe::vmsplice(pipe, page) }
        });
        assert_eq!(referred.expect("a pipe"), vmsplice_refers());
        let refused = refers(|_, _| Err(io::Error::from_raw_os_error(libc::EPERM)));
        assert!(refused.is_err());
    }
}
