//! Good, broken and hostile images: each bad one is lost alone, and the report says which.

use image::{DynamicImage, ImageFormat, RgbImage, RgbaImage};
use std::path::Path;
use std::process::{Command, Stdio};
use tranship_testkit::{Watchdog, artifact, folder};

const FILE: &str = include_str!("../thumbnails.toml");

/// Makes an image of another colour for each width.
fn picture(width: u32, height: u32) -> DynamicImage {
    let colour = [width.to_le_bytes()[0], 100, 200];
    DynamicImage::ImageRgb8(RgbImage::from_pixel(width, height, image::Rgb(colour)))
}

/// Makes a PNG that has no pixels, but says that it has many: with a right checksum.
fn bomb(side: u32) -> Vec<u8> {
    let mut header = b"IHDR".to_vec();
    header.extend(side.to_be_bytes());
    header.extend(side.to_be_bytes());
    header.extend([8, 6, 0, 0, 0]);
    let sum = header.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 * (sum & 1))
        })
    });
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\r".to_vec();
    png.extend(header);
    png.extend((!sum).to_be_bytes());
    png
}

fn make(images: &Path) {
    let save = |name: &str, image: &DynamicImage, format| {
        image
            .save_with_format(images.join(name), format)
            .expect("an image");
    };
    save("a.png", &picture(300, 200), ImageFormat::Png);
    save("b.jpeg", &picture(64, 640), ImageFormat::Jpeg);
    save("c.webp", &picture(20, 20), ImageFormat::WebP);
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(images.join(name), bytes).expect("a file");
    };
    let good = std::fs::read(images.join("b.jpeg")).expect("a file");
    write("d-cut.jpeg", &good[..good.len() / 3]);
    write("e-none.png", b"this is no image");
    write("f-empty.webp", b"");
    write("g-bomb.png", &bomb(100_000));
    // The pixels alone are more than the decoder's memory: the process ends.
    let large = RgbaImage::new(4500, 4500);
    save(
        "h-large.png",
        &DynamicImage::ImageRgba8(large),
        ImageFormat::Png,
    );
    save("i.png", &picture(1, 1), ImageFormat::Png);
    std::fs::create_dir(images.join("j")).expect("a folder");
}

#[test]
fn a_bad_image_is_lost_alone_and_the_report_says_which() {
    let _watchdog = Watchdog::new();
    let dir = folder().expect("a folder");
    for name in ["images", "out"] {
        std::fs::create_dir(dir.path().join(name)).expect("a folder");
    }
    make(&dir.path().join("images"));
    let program = format!("{:?}", env!("CARGO_BIN_EXE_tranship-thumbnails"));
    let text = FILE.replace("\"tranship-thumbnails\"", &program);
    let text = text.replace("\"256MiB\"", "\"64MiB\"") + "\n[manager.pressure]\nwatch = false\n";
    std::fs::write(dir.path().join("thumbnails.toml"), text).expect("a file");
    let output = Command::new(artifact("tranship-cli", "tranship"))
        .arg("run")
        .arg(dir.path().join("thumbnails.toml"))
        .stdin(Stdio::null())
        .env("XDG_RUNTIME_DIR", dir.path())
        .env_remove("TRANSHIP_SOCKET")
        .output()
        .expect("tranship runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report = std::fs::read_to_string(dir.path().join("out/report.txt")).expect("a report");
    let lines: Vec<&str> = report.lines().collect();
    let begins = [
        "a.png: 0.png",
        "b.jpeg: 1.png",
        "c.webp: 2.png",
        "d-cut.jpeg: lost: ",
        "e-none.png: lost: ",
        "f-empty.webp: lost: ",
        "g-bomb.png: lost: ",
        "h-large.png: lost: it ended `decode`",
        "i.png: 8.png",
    ];
    assert_eq!(lines.len(), begins.len(), "{report}");
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(begin), "{report}");
    }
    for (number, size) in [(0, (160, 106)), (1, (16, 160)), (2, (20, 20)), (8, (1, 1))] {
        let made = image::open(dir.path().join(format!("out/{number}.png"))).expect("a thumbnail");
        assert_eq!((made.width(), made.height()), size, "{number}");
    }
    let page = std::fs::read_to_string(dir.path().join("out/index.html")).expect("a page");
    assert_eq!(page.matches("<img ").count(), 4, "{page}");
}
