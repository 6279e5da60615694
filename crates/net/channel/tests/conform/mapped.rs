//! Mappings of a process, and the access that the kernel would allow to them.

use std::ops::Range;

#[derive(Debug)]
pub struct Mapped {
    pub range: Range<usize>,
    /// Name and inode; the inode of a memfd is unique.
    pub file: (String, u64),
    pub shared: bool,
    /// The mapping is writable, or mprotect(2) would make it so.
    pub may_write: bool,
}

/// Returns the mappings with a file behind them, as `maps` or `smaps` of a process lists them. Only `smaps`, for which
/// the kernel looks at every page, has the flags.
pub fn mapped(list: &str) -> Vec<Mapped> {
    let text = std::fs::read_to_string(list).expect("the mappings");
    let mut all = Vec::new();
    // Most lines are figures, which begin with a capital; they are many.
    let wanted =
        |line: &&str| line.starts_with("VmFlags:") || !line.starts_with(char::is_uppercase);
    for line in text.lines().filter(wanted) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() == Some(&"VmFlags:") {
            let last: Option<&mut Mapped> = all.last_mut();
            let last = last.expect("flags of a mapping");
            last.shared = words.contains(&"sh");
            last.may_write = words.contains(&"mw");
        } else if let [range, _, _, _, inode, name @ ..] = words.as_slice()
            && let Some((begin, end)) = range.split_once('-')
        {
            let number = |text| usize::from_str_radix(text, 16).expect("hexadecimal");
            all.push(Mapped {
                range: number(begin)..number(end),
                file: (name.join(" "), inode.parse().expect("an inode")),
                shared: false,
                may_write: false,
            });
        }
    }
    all.retain(|map| map.file.1 != 0);
    all
}
