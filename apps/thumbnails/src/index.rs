//! The last component: it writes thumbnails, a page that shows them, and a report.

use crate::note::Note;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use tranship::component::Component;

/// Most images of a folder.
const MOST: u32 = 1_000_000;

/// Writes what comes, until each image has come or is lost.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let component = Component::connect()?;
    let mut from = component.consumer("thumbnails")?;
    let mut seen: BTreeMap<u32, Note> = BTreeMap::new();
    loop {
        let item = from.recv()?;
        let bytes = item.to_vec();
        let (note, png) = Note::read(&bytes)?;
        let total = note.total;
        ensure!(total <= MOST, "{total} images, at most {MOST} are taken");
        // An image may come twice, if a component ended after it had passed it on.
        let better = |had: &Note| had.fault.is_some() && note.fault.is_none();
        if note.number < total && seen.get(&note.number).is_none_or(better) {
            if note.fault.is_none() {
                write(&folder.join(format!("{}.png", note.number)), png)?;
            }
            seen.insert(note.number, note);
        }
        // A sender that has gone needs no word.
        let _ = item.ack();
        if seen.len() >= total as usize {
            break;
        }
    }
    let (report, page) = tell(&seen);
    write(&folder.join("report.txt"), report.as_bytes())?;
    write(&folder.join("index.html"), page.as_bytes())?;
    print!("{report}");
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// Returns the report and the page.
fn tell(seen: &BTreeMap<u32, Note>) -> (String, String) {
    let (mut report, mut page) = (
        String::new(),
        "<!doctype html><title>Thumbnails</title>\n".to_owned(),
    );
    for (number, note) in seen {
        // Writing to a string does not fail.
        let _ = match &note.fault {
            None => {
                let _ = writeln!(report, "{}: {number}.png", plain(&note.name));
                writeln!(
                    page,
                    "<figure><img src=\"{number}.png\" width=\"{}\" height=\"{}\"><figcaption>{}</figcaption></figure>",
                    note.width,
                    note.height,
                    escape(&note.name)
                )
            }
            Some(why) => {
                let _ = writeln!(report, "{}: lost: {}", plain(&note.name), plain(why));
                writeln!(page, "<p>{}: lost: {}</p>", escape(&note.name), escape(why))
            }
        };
    }
    (report, page)
}

/// Names come from files, and may have any characters.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

fn escape(text: &str) -> String {
    let text = plain(text).replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{Note, tell};

    #[test]
    fn names_are_text_and_no_html() {
        let name = "<script>\n".to_owned();
        let note = Note {
            name,
            ..Note::default()
        };
        let (report, page) = tell(&[(0, note)].into());
        assert_eq!(report, "<script>?: 0.png\n");
        assert!(
            page.contains("&lt;script&gt;?") && !page.contains("<script"),
            "{page}"
        );
    }
}
