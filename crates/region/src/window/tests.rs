use super::*;

const PAGE: usize = 4096;

#[test]
fn chunks_come_and_go() {
    let writer = Window::reserve(8 * PAGE, 2 * PAGE).expect("window");
    let reader = Window::reserve(8 * PAGE, 2 * PAGE).expect("window");
    assert_eq!(writer.base().addr() % ALIGN, 0);
    let fd = writer
        .make_chunk(1, "test", Opts::default())
        .expect("chunk");
    assert!(writer.is_attached(1) && !writer.is_attached(0) && !writer.is_attached(4));
    reader.attach_ro(1, &fd).expect("attach");
    // SAFETY: in the chunk just made, with no reference to it.
    unsafe { writer.base().add(2 * PAGE + 3).write_volatile(5) };
    let view = reader.view(2 * PAGE as u64, 2 * PAGE as u64).expect("view");
    assert_eq!(view.read_u8(3), Ok(5));
    assert!(matches!(
        reader.attach_ro(1, &fd),
        Err(WindowError::Taken { index: 1 })
    ));
    // SAFETY: no view of it is used any more.
    unsafe { reader.detach(1) }.expect("detach");
    assert!(reader.view(2 * PAGE as u64, 1).is_err());
    // SAFETY: there is no chunk.
    let again = unsafe { reader.detach(1) };
    assert!(matches!(again, Err(WindowError::Empty { index: 1 })));
    reader.attach_ro(1, &fd).expect("again");
    assert!(matches!(
        reader.attach_ro(4, &fd),
        Err(WindowError::NoSuchChunk {
            index: 4,
            chunks: 4
        })
    ));
    assert!(matches!(
        reader.attach_shared(2, &fd, tranship_sys::map::Access::ReadWrite),
        Err(WindowError::NotAChunk { index: 2, .. })
    ));
}

#[test]
fn a_range_needs_all_its_chunks() {
    let window = Window::reserve(4 * PAGE, PAGE).expect("window");
    let page = PAGE as u64;
    for index in [0, 1, 3] {
        window
            .make_chunk(index, "test", Opts::default())
            .expect("chunk");
    }
    assert_eq!(window.view(0, 2 * page).expect("run").len(), 2 * PAGE);
    assert!(window.view(0, 2 * page + 1).is_err());
    assert!(window.view(3 * page, page).is_ok());
    for (offset, len) in [
        (3 * page, page + 1),
        (4 * page, 1),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (1, u64::MAX),
    ] {
        assert!(window.view(offset, len).is_err(), "{offset} {len}");
    }
    assert!(window.view(4 * page, 0).is_ok());
}

#[test]
fn shared_chunks_are_written_by_all() {
    let opts = Opts {
        sealing: crate::Sealing::Shared,
        ..Opts::default()
    };
    let a = Window::reserve(PAGE, PAGE).expect("window");
    let b = Window::reserve(PAGE, PAGE).expect("window");
    let fd = a.make_chunk(0, "test", opts).expect("chunk");
    b.attach_shared(0, &fd, tranship_sys::map::Access::ReadWrite)
        .expect("attach");
    // SAFETY: in the chunk, no reference to it exists.
    unsafe { b.base().write_volatile(8) };
    assert_eq!(a.view(0, 1).expect("view").read_u8(0), Ok(8));
}

#[test]
fn impossible_shapes_are_errors() {
    for (max, chunk) in [(0, PAGE), (PAGE, 0), (PAGE, 100), (PAGE + 1, PAGE)] {
        let error = Window::reserve(max, chunk).expect_err("shape");
        assert!(matches!(error, WindowError::Shape { .. }));
    }
    let error = Window::reserve(1 << 60, 1 << 40).expect_err("too long");
    assert!(matches!(error, WindowError::Io { .. }));
}

#[test]
fn a_dropped_window_is_gone() {
    let window = Window::reserve(4 * PAGE, PAGE).expect("window");
    window
        .make_chunk(2, "dropped-window", Opts::default())
        .expect("chunk");
    drop(window);
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    assert!(!maps.contains("dropped-window"));
}
