//! Input of the demonstration: a given file, or a few hundred MiB of real data found on this machine.

use anyhow::{Context, Result, bail};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Amount of data to look for.
const WANTED: u64 = 256 << 20;
/// Smaller files are not worth a descriptor.
const SMALLEST: u64 = 256 << 10;
/// Bounds the search.
const MOST_ENTRIES: usize = 50_000;
const MOST_FILES: usize = 512;

/// Some files, read as one.
#[derive(Debug)]
pub(crate) struct Input {
    parts: Vec<Part>,
    total: u64,
    /// Origin of the data, for people.
    pub origin: String,
}

#[derive(Debug)]
struct Part {
    file: File,
    begin: u64,
    len: u64,
}

impl Input {
    /// Opens the given file, or any large files of this machine.
    pub(crate) fn open(given: Option<&Path>) -> Result<Self> {
        if let Some(path) = given {
            let len = std::fs::metadata(path)
                .with_context(|| format!("looking at {}", path.display()))?
                .len();
            return Self::of(&[(path.to_path_buf(), len)], path.display().to_string());
        }
        for folder in places() {
            let found = search(&folder);
            let total: u64 = found.iter().map(|(_, len)| len).sum();
            if total >= WANTED / 4 {
                return Self::of(
                    &found,
                    format!("{} files below {}", found.len(), folder.display()),
                );
            }
        }
        bail!(
            "found less than {} MiB of large files on this machine; name a file",
            (WANTED / 4) >> 20
        )
    }

    fn of(files: &[(PathBuf, u64)], origin: String) -> Result<Self> {
        let mut parts = Vec::new();
        let mut total = 0;
        for (path, len) in files {
            let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
            parts.push(Part {
                file,
                begin: total,
                len: *len,
            });
            total += len;
        }
        if total == 0 {
            bail!("{origin}: nothing in it");
        }
        Ok(Self {
            parts,
            total,
            origin,
        })
    }

    /// Returns the bytes in all.
    pub(crate) fn len(&self) -> u64 {
        self.total
    }

    /// Returns the length of the frame that begins there; the last one is shorter.
    pub(crate) fn frame_len(&self, offset: u64, frame: usize) -> usize {
        usize::try_from(self.total.saturating_sub(offset)).map_or(frame, |left| left.min(frame))
    }

    /// Fills `out` from `offset` on, straight out of the files.
    pub(crate) fn read_at(&self, mut offset: u64, mut out: &mut [u8]) -> Result<()> {
        let first = self
            .parts
            .partition_point(|part| part.begin + part.len <= offset);
        for part in &self.parts[first..] {
            if out.is_empty() {
                break;
            }
            let within = offset - part.begin;
            let len =
                usize::try_from(part.len - within).map_or(out.len(), |left| left.min(out.len()));
            let (now, later) = out.split_at_mut(len);
            part.file
                .read_exact_at(now, within)
                .context("reading the input (did it become shorter?)")?;
            offset += len as u64;
            out = later;
        }
        if !out.is_empty() {
            bail!(
                "{} bytes beyond the end of the input were asked for",
                out.len()
            );
        }
        Ok(())
    }

    /// Returns the BLAKE3 hash of all of it.
    pub(crate) fn hash(&self) -> Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        let mut offset = 0;
        while offset < self.total {
            let len = self.frame_len(offset, buffer.len());
            self.read_at(offset, &mut buffer[..len])?;
            hasher.update(&buffer[..len]);
            offset += len as u64;
        }
        Ok(hasher.finalize())
    }
}

/// Returns the places to look: this program's own build outputs, then installed files.
fn places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Ok(program) = std::env::current_exe() {
        let built = program.ancestors().skip(1).take(3);
        places.extend(
            built
                .filter(|folder| {
                    folder.join(".cargo-lock").exists() || folder.join("CACHEDIR.TAG").exists()
                })
                .map(Path::to_path_buf),
        );
    }
    places.extend(["/usr/lib", "/usr", "/opt"].map(PathBuf::from));
    places
}

/// Returns the largest files below a folder, together about as much as is wanted, in the order of their names.
fn search(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut found: Vec<(PathBuf, u64)> = Vec::new();
    let mut inodes = HashSet::new();
    let mut open = vec![folder.to_path_buf()];
    let mut seen = 0;
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            seen += 1;
            // Symbolic links are not followed: the type is the entry's own.
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                open.push(entry.path());
                continue;
            }
            let Ok(data) = entry.metadata() else { continue };
            let new =
                kind.is_file() && data.len() >= SMALLEST && inodes.insert((data.dev(), data.ino()));
            if new && File::open(entry.path()).is_ok() {
                found.push((entry.path(), data.len()));
            }
        }
        if seen > MOST_ENTRIES {
            break;
        }
    }
    found.sort_unstable_by_key(|(path, len)| (std::cmp::Reverse(*len), path.clone()));
    found.truncate(MOST_FILES);
    let mut total = 0;
    found.retain(|(_, len)| {
        let taken = total < WANTED && *len <= WANTED;
        total += if taken { *len } else { 0 };
        taken
    });
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dir: &Path) -> Vec<(PathBuf, u64)> {
        let parts = [("a", vec![1u8; 10]), ("b", vec![2; 1]), ("c", vec![3; 7])];
        let write = |(name, bytes): (&str, Vec<u8>)| {
            let path = dir.join(name);
            std::fs::write(&path, &bytes).expect("a file");
            (path, bytes.len() as u64)
        };
        parts.into_iter().map(write).collect()
    }

    #[test]
    fn several_files_read_as_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let input = Input::of(&files(dir.path()), String::new()).expect("an input");
        let mut all = vec![0; 18];
        input.read_at(0, &mut all).expect("all of it");
        for begin in 0..18 {
            for end in begin..=18 {
                let mut piece = vec![0; end - begin];
                input.read_at(begin as u64, &mut piece).expect("a piece");
                assert_eq!(piece, all[begin..end]);
            }
        }
        assert_eq!(input.hash().expect("a hash"), blake3::hash(&all));
        assert!(input.read_at(17, &mut [0; 2]).is_err());
        assert_eq!(input.frame_len(16, 8), 2);
    }

    #[test]
    fn nothing_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("e"), "").expect("a file");
        assert!(Input::open(Some(&dir.path().join("e"))).is_err());
        assert!(Input::open(Some(&dir.path().join("none"))).is_err());
    }

    #[test]
    fn the_search_takes_large_files_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let large = dir.path().join("large");
        std::fs::write(&large, vec![7; 300 << 10]).expect("a file");
        std::fs::write(dir.path().join("small"), "x").expect("a file");
        std::fs::hard_link(&large, dir.path().join("same")).expect("a link");
        assert_eq!(search(dir.path()).len(), 1);
    }
}
