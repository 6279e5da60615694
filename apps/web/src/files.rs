//! Files of a folder. A file's bytes are read into a pool once; every reply has them by reference, until the file changes.

use crate::reply::{Heads, MEMORY, http_date};
use crate::request::{Method, Request, copy_record};
use crate::stage::{Outs, Stage, To};
use crate::word::Word;
use anyhow::{Context, Result};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};
use tranship::{Body, Buffer, Pool};

/// Time for which a file is not looked at again.
const FRESH: Duration = Duration::from_secs(1);
/// Files that are kept; beyond it those that were not asked for go.
const KEPT: usize = 4096;

/// The component.
#[derive(Debug)]
pub struct Files {
    pool: Pool,
    root: OwnedFd,
    heads: Heads,
    record: Vec<u8>,
    kept: HashMap<Vec<u8>, Kept>,
    /// Bytes of kept files, and the most.
    bytes: u64,
    most: u64,
}

#[derive(Debug)]
struct Kept {
    seen: Instant,
    asked: bool,
    identity: Identity,
    headers: String,
    tag: String,
    bytes: Buffer,
}

/// What changes when a file does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity(u64, u64, i64, u64);

impl Identity {
    #[allow(clippy::cast_sign_loss)] // a size
    fn of(stat: &Stat) -> Identity {
        Identity(
            stat.st_ino,
            stat.st_size as u64,
            stat.st_mtime,
            stat.st_mtime_nsec,
        )
    }
}

impl Files {
    /// Makes the component for a folder.
    ///
    /// # Errors
    /// A folder that cannot be opened.
    pub fn new(pool: Pool, root: &Path) -> Result<Files> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(root, flags, Mode::empty());
        Ok(Files {
            most: pool.max_bytes() / 2,
            pool,
            root: opened.with_context(|| format!("the folder of files, {}", root.display()))?,
            heads: Heads::default(),
            record: Vec::new(),
            kept: HashMap::new(),
            bytes: 0,
        })
    }

    /// Opens a file below the folder; no link leads out of it.
    fn open(&self, path: &[u8]) -> Result<(File, Stat), u16> {
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        let with_index;
        let relative = if relative.is_empty() || relative.ends_with(b"/") {
            with_index = [relative, b"index.html"].concat();
            &with_index
        } else {
            relative
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let below = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let opened = rustix::fs::openat2(&self.root, relative, flags, Mode::empty(), below);
        let file = opened.map_err(|error| match error {
            rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => 403u16,
            rustix::io::Errno::MFILE | rustix::io::Errno::NFILE => 503,
            _ => 404,
        })?;
        let stat = rustix::fs::fstat(&file).map_err(|_| 500u16)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((file.into(), stat)),
            FileType::Directory => Err(301),
            _ => Err(404),
        }
    }

    /// Returns a file as it is kept; reads it first if it is new or has changed.
    fn find(&mut self, path: &[u8], now: Instant) -> Result<&mut Kept, u16> {
        let known = self.kept.get(path);
        let fresh = known.is_some_and(|kept| now.duration_since(kept.seen) < FRESH);
        if !fresh {
            let known = known.map(|kept| kept.identity);
            let found = self.open(path);
            match found {
                Ok((_, stat)) if known == Some(Identity::of(&stat)) => {}
                Ok((file, stat)) => {
                    self.forget(path);
                    let kept = self.read(path, file, &stat, now)?;
                    self.bytes += kept.bytes.len() as u64;
                    self.kept.insert(path.to_vec(), kept);
                }
                Err(status) => {
                    self.forget(path);
                    return Err(status);
                }
            }
        }
        let kept = self.kept.get_mut(path).ok_or(500u16)?;
        if !fresh {
            kept.seen = now;
        }
        kept.asked = true;
        Ok(kept)
    }

    fn forget(&mut self, path: &[u8]) {
        if let Some(gone) = self.kept.remove(path) {
            self.bytes -= gone.bytes.len() as u64;
        }
    }

    fn read(
        &mut self,
        path: &[u8],
        mut file: File,
        stat: &Stat,
        now: Instant,
    ) -> Result<Kept, u16> {
        let size = usize::try_from(stat.st_size).map_err(|_| 500u16)?;
        if self.kept.len() >= KEPT || self.bytes + size as u64 > self.most {
            self.make_room();
        }
        let mut buffer = self.pool.alloc_timeout(size, MEMORY).map_err(|_| 503u16)?;
        // A file that shrinks meanwhile has no reply with that length.
        file.read_exact(&mut buffer).map_err(|_| 500u16)?;
        let second = u64::try_from(stat.st_mtime).unwrap_or(0);
        let tag = format!("\"{:x}-{:x}-{:x}\"", stat.st_ino, second, size);
        let headers = format!(
            "content-type: {}\r\nlast-modified: {}\r\netag: {tag}\r\naccept-ranges: bytes\r\n",
            kind_of(path),
            http_date(second)
        );
        Ok(Kept {
            seen: now,
            asked: true,
            identity: Identity::of(stat),
            headers,
            tag,
            bytes: buffer.freeze(),
        })
    }

    /// Forgets files that were not asked for since the last time; all, if that is not half of them.
    fn make_room(&mut self) {
        let before = self.kept.len();
        self.kept.retain(|_, kept| std::mem::take(&mut kept.asked));
        if self.kept.len() > before / 2 {
            self.kept.clear();
        }
        let left = self.kept.values().map(|kept| kept.bytes.len() as u64);
        self.bytes = left.sum();
    }

    fn answer(&mut self, word: Word, outs: &mut Outs) -> Result<(), u16> {
        let record = std::mem::take(&mut self.record);
        let answered = self.reply(&record, word);
        self.record = record;
        let (word, reply) = answered?;
        outs.send(To::Front, word, reply);
        Ok(())
    }

    fn reply(&mut self, record: &[u8], word: Word) -> Result<(Word, Body), u16> {
        let request = Request::read(record).ok_or(500u16)?;
        if !matches!(request.method, Method::Get | Method::Head) {
            return self.say(word, 405, "allow: GET, HEAD\r\n");
        }
        let found = self.find(request.path, Instant::now());
        let kept = match found {
            Ok(kept) => kept,
            Err(301) => {
                let (path, query) = request
                    .target
                    .split_at(request.target.find('?').unwrap_or(request.target.len()));
                return self.say(word, 301, &format!("location: {path}/{query}\r\n"));
            }
            Err(status) => return Err(status),
        };
        let (headers, bytes) = (kept.headers.clone(), kept.bytes.clone());
        let same = request.header("if-none-match").is_some_and(|tags| {
            tags.split(|byte| *byte == b',')
                .any(|tag| tag.trim_ascii() == b"*" || tag.trim_ascii() == kept.tag.as_bytes())
        });
        let (status, headers, body) = if same {
            (304, headers, None)
        } else {
            let range = request.header("range").filter(|_| {
                request
                    .header("if-range")
                    .is_none_or(|tag| tag == kept.tag.as_bytes())
            });
            match range.and_then(|range| range_of(range, bytes.len())) {
                None => (200, headers, Some(bytes)),
                Some(None) => {
                    return self.say(
                        word,
                        416,
                        &format!("content-range: bytes */{}\r\n", bytes.len()),
                    );
                }
                Some(Some((first, last))) => (
                    206,
                    format!(
                        "{headers}content-range: bytes {first}-{last}/{}\r\n",
                        bytes.len()
                    ),
                    Some(bytes.slice(first..=last)),
                ),
            }
        };
        self.heads
            .reply(&self.pool, word, status, &headers, body)
            .map_err(|_| 503)
    }

    fn say(&mut self, word: Word, status: u16, headers: &str) -> Result<(Word, Body), u16> {
        let reply = self.heads.reply(&self.pool, word, status, headers, None);
        reply.map_err(|_| 503)
    }
}

/// Reads a range: `None`: to be ignored (several ranges, another unit); `Some(None)`: no byte of the file is in it.
fn range_of(text: &[u8], len: usize) -> Option<Option<(usize, usize)>> {
    let text = std::str::from_utf8(text).ok()?.strip_prefix("bytes=")?;
    let (first, last) = text.split_once('-')?;
    let number = |text: &str| text.trim().parse::<usize>().ok();
    Some(match (first.trim(), last.trim()) {
        ("", last) => match number(last)? {
            0 => None,
            _ if len == 0 => None,
            suffix => Some((len.saturating_sub(suffix), len - 1)),
        },
        (first, last) => {
            let first = number(first)?;
            let last = match last {
                "" => usize::MAX,
                last => number(last)?,
            };
            if last < first {
                return None;
            }
            (first < len).then(|| (first, last.min(len.saturating_sub(1))))
        }
    })
}

/// Returns the media type of a name's ending.
fn kind_of(path: &[u8]) -> &'static str {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let ending = match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) => name[dot + 1..].to_ascii_lowercase(),
        None if name.is_empty() => b"html".to_vec(),
        None => Vec::new(),
    };
    match &ending[..] {
        b"html" | b"htm" => "text/html; charset=utf-8",
        b"css" => "text/css; charset=utf-8",
        b"js" | b"mjs" => "text/javascript; charset=utf-8",
        b"json" => "application/json",
        b"txt" | b"md" => "text/plain; charset=utf-8",
        b"svg" => "image/svg+xml",
        b"png" => "image/png",
        b"jpg" | b"jpeg" => "image/jpeg",
        b"webp" => "image/webp",
        b"gif" => "image/gif",
        b"ico" => "image/x-icon",
        b"pdf" => "application/pdf",
        b"wasm" => "application/wasm",
        b"woff2" => "font/woff2",
        b"mp4" => "video/mp4",
        _ => "application/octet-stream",
    }
}

impl Stage for Files {
    fn take(&mut self, _: To, word: Word, body: Body, outs: &mut Outs) {
        let done = match copy_record(&body, &mut self.record) {
            true => self.answer(word, outs),
            false => Err(500),
        };
        if let Err(status) = done {
            outs.answer(word, status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{kind_of, range_of};

    #[test]
    fn ranges_are_inside_of_the_file() {
        for (text, wanted) in [
            ("bytes=0-3", Some(Some((0, 3)))),
            ("bytes=5-", Some(Some((5, 9)))),
            ("bytes=-3", Some(Some((7, 9)))),
            ("bytes=-30", Some(Some((0, 9)))),
            ("bytes=0-99", Some(Some((0, 9)))),
            ("bytes=10-", Some(None)),
            ("bytes=-0", Some(None)),
            ("bytes=3-1", None),
            ("bytes=0-1,4-5", None),
            ("lines=0-1", None),
        ] {
            assert_eq!(range_of(text.as_bytes(), 10), wanted, "{text}");
        }
    }

    #[test]
    fn the_media_type_is_that_of_the_ending() {
        assert_eq!(kind_of(b"/a.b/page.HTML"), "text/html; charset=utf-8");
        assert_eq!(kind_of(b"/"), "text/html; charset=utf-8");
        assert_eq!(kind_of(b"/a.png/file"), "application/octet-stream");
    }
}
