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
    assert_eq!(view.read::<u8>(3), Ok(5));
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
    assert_eq!(a.view(0, 1).expect("view").read::<u8>(0), Ok(8));
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

/// Returns the kernel's answer to a write of one byte there: the kernel looks at the same page tables.
fn can_write(at: *mut u8) -> bool {
    let (from, to) = rustix::pipe::pipe().expect("pipe");
    rustix::io::write(&to, &[7]).expect("pipe");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&from);
    // SAFETY: the kernel checks the address.
    unsafe { libc::read(fd, at.cast(), 1) == 1 }
}

#[test]
fn a_sealed_chunk_is_changed_by_nobody() {
    let opts = Opts {
        sealing: Sealing::Open,
        ..Opts::default()
    };
    let writer = Window::reserve(4 * PAGE, 2 * PAGE).expect("window");
    let reader = Window::reserve(4 * PAGE, 2 * PAGE).expect("window");
    let fd = writer.make_chunk(1, "test", opts).expect("chunk");
    let at = writer.base().wrapping_add(2 * PAGE + 3);
    assert!(can_write(at) && !writer.is_sealed(1));
    // The reader refuses the chunk before it is sealed.
    let open = reader.attach_sealed(1, &fd).expect_err("it is open");
    assert!(matches!(open, WindowError::NotAChunk { index: 1, .. }));
    let open = reader.attach_ro(1, &fd).expect_err("it is open");
    assert!(matches!(open, WindowError::NotAChunk { index: 1, .. }));
    // SAFETY: nothing writes it.
    let instead = unsafe { writer.seal(1, &fd, "test") }.expect("sealed");
    assert!(instead.is_none());
    assert!(writer.is_sealed(1) && !can_write(at));
    reader.attach_sealed(1, &fd).expect("sealed");
    assert!(reader.is_sealed(1) && !reader.is_sealed(0) && !reader.is_sealed(2));
    for window in [&writer, &reader] {
        let view = window.view(2 * PAGE as u64, 2 * PAGE as u64).expect("view");
        assert_eq!((view.read::<u8>(3), view.read::<u8>(4)), (Ok(7), Ok(0)));
    }
    // No system call makes the sealed chunk writable.
    use tranship_sys::{map, memfd};
    assert!(map::map_shared_rw(&fd, PAGE, 0).is_err());
    assert!(memfd::punch(&fd, 0, PAGE as u64).is_err());
    assert!(memfd::set_len(&fd, 0).is_err());
    assert!(rustix::io::pwrite(&fd, b"x", 0).is_err());
    // SAFETY: it stays readable.
    let opened = unsafe { map::protect(writer.base.add(2 * PAGE), PAGE, map::Access::ReadWrite) };
    // If the kernel has mapped it privately it can be written, and no other process sees that.
    assert_eq!(opened.is_ok(), can_write(at.wrapping_add(1)));
    let view = reader.view(2 * PAGE as u64, PAGE as u64).expect("view");
    assert_eq!(view.read::<u8>(4), Ok(0));
    // SAFETY: no view of it is used any more.
    unsafe { reader.detach(1) }.expect("detach");
    assert!(!reader.is_sealed(1));
    reader
        .attach_ro(1, &fd)
        .expect_err("no chunk that its maker writes");
}

/// Another process can still write the chunk: its bytes are passed on as a copy.
#[test]
fn what_the_kernel_does_not_seal_is_copied() {
    let opts = Opts {
        sealing: Sealing::Open,
        ..Opts::default()
    };
    let writer = Window::reserve(PAGE, PAGE).expect("window");
    let reader = Window::reserve(PAGE, PAGE).expect("window");
    let fd = writer.make_chunk(0, "test", opts).expect("chunk");
    assert!(can_write(writer.base().wrapping_add(5)));
    let held = tranship_sys::map::map_shared_rw(&fd, PAGE, 0).expect("map");
    let before = tranship_sys::memfd::facts(&fd).expect("facts").inode;
    // SAFETY: nothing writes it.
    let copied = unsafe { writer.seal(0, &fd, "test") }.expect("copied");
    let fd = copied.expect("another one");
    assert_ne!(
        tranship_sys::memfd::facts(&fd).expect("facts").inode,
        before
    );
    reader.attach_sealed(0, &fd).expect("sealed");
    // SAFETY: the mapping made here, which ends here.
    unsafe {
        held.write_volatile(9);
        tranship_sys::map::unmap(held, PAGE).expect("unmap");
    }
    for window in [&writer, &reader] {
        let view = window.view(0, PAGE as u64).expect("view");
        assert_eq!((view.read::<u8>(0), view.read::<u8>(5)), (Ok(0), Ok(7)));
    }
}
