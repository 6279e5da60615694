//! Thumbnails of images that nobody trusts.
//!
//! Each component does one thing ([`thumbnails.toml`](../thumbnails.toml)). Those that touch an image's bytes have locked
//! themselves down: they open nothing. An image that crashes one of them is lost, and no other image is.

mod index;
mod note;
mod stage;

use anyhow::{Context, Result, bail};
use image::{ImageBuffer, ImageFormat, ImageReader, Limits, Rgba, RgbaImage, imageops};
use note::Note;
use std::io::Cursor;
use std::path::Path;
use tranship::component::Component;

/// Most bytes of a file.
const FILE: u64 = 16 << 20;
/// Most pixels of an image's side, and bytes that its decoder may ask for.
const SIDE: u32 = 20_000;
const DECODED: u64 = 256 << 20;
/// Pixels of a thumbnail's longer side.
const THUMBNAIL: u32 = 160;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["files", folder] => files(Path::new(folder)),
        ["decode"] => stage::run("images", "pixels", decode),
        ["resize"] => stage::run("pixels", "small", resize),
        ["encode"] => stage::run("small", "thumbnails", encode),
        ["index", folder] => index::run(Path::new(folder)),
        _ => bail!("a component is `files FOLDER`, `decode`, `resize`, `encode` or `index FOLDER`"),
    }
}

/// Sends each file of a folder.
fn files(folder: &Path) -> Result<()> {
    let component = Component::connect()?;
    let mut to = component.producer("images")?;
    let mut paths = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let total = u32::try_from(paths.len())?;
    if total == 0 {
        stage::send(&mut to, &Note::default(), &[])?;
    }
    for (number, path) in (0..).zip(&paths) {
        let name = path.file_name().unwrap_or_default();
        let mut note = Note {
            number,
            total,
            name: name.to_string_lossy().into_owned(),
            ..Note::default()
        };
        let bytes = match std::fs::metadata(path) {
            Ok(file) if file.len() > FILE => Err(format!(
                "it has {} bytes, at most {FILE} are read",
                file.len()
            )),
            _ => std::fs::read(path).map_err(|why| why.to_string()),
        };
        let bytes = bytes.unwrap_or_else(|why| note.loses(why));
        stage::send(&mut to, &note, &bytes)?;
    }
    Ok(to.wait_done(None)?)
}

fn decode(note: &mut Note, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    let mut limits = Limits::default();
    (limits.max_image_width, limits.max_image_height) = (Some(SIDE), Some(SIDE));
    limits.max_alloc = Some(DECODED);
    reader.limits(limits);
    let image = reader.decode()?.into_rgba8();
    (note.width, note.height) = image.dimensions();
    Ok(image.into_raw())
}

fn resize(note: &mut Note, pixels: &[u8]) -> Result<Vec<u8>> {
    let (width, height) = (note.width, note.height);
    let image = ImageBuffer::<Rgba<u8>, &[u8]>::from_raw(width, height, pixels);
    let image = image.context("the pixels are fewer than the decoder says")?;
    let longer = width.max(height).max(1);
    let short = |side: u32| {
        let scaled = u64::from(side) * u64::from(THUMBNAIL.min(longer)) / u64::from(longer);
        u32::try_from(scaled).unwrap_or(THUMBNAIL).max(1)
    };
    let small = imageops::thumbnail(&image, short(width), short(height));
    (note.width, note.height) = small.dimensions();
    Ok(small.into_raw())
}

fn encode(note: &mut Note, pixels: &[u8]) -> Result<Vec<u8>> {
    let image = RgbaImage::from_raw(note.width, note.height, pixels.to_vec());
    let image = image.context("the pixels are fewer than their sender says")?;
    let mut png = Cursor::new(Vec::new());
    image.write_to(&mut png, ImageFormat::Png)?;
    Ok(png.into_inner())
}
