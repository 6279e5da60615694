use super::*;

#[test]
fn every_read_is_bounded() {
    let bytes: Vec<u8> = (0..64).collect();
    let view = View::from(&bytes[..]);
    assert_eq!(view.read::<u8>(63), Ok(63));
    assert_eq!(view.read::<u32>(1), Ok(0x0403_0201));
    assert_eq!(view.read::<u64>(3), Ok(0x0a09_0807_0605_0403));
    assert_eq!(view.read::<[u16; 2]>(2), Ok([0x0302, 0x0504]));
    assert_eq!(view.to_vec(), bytes);
    let error = view.read::<u64>(57).expect_err("beyond");
    assert_eq!(
        error,
        OutOfBounds {
            offset_bytes: 57,
            len_bytes: 8,
            available_bytes: 64
        }
    );
    assert!(view.read::<u8>(64).is_err());
    assert!(view.read::<u8>(usize::MAX).is_err());
    assert!(view.read::<u64>(usize::MAX - 3).is_err());
    assert!(view.copy_to_slice(1, &mut [0; 64]).is_err());
    assert!(view.copy_to_slice(64, &mut []).is_ok());
}

#[test]
fn a_part_of_a_part() {
    let bytes: Vec<u8> = (0..64).collect();
    let part = View::from(&bytes[..]).sub(8..16).expect("sub");
    assert_eq!(part.len(), 8);
    assert_eq!(part.sub(2..4).expect("sub").to_vec(), [10, 11]);
    assert!(part.sub(0..9).is_err() && part.sub(9..9).is_err());
    // A range whose end is before its start is an empty part, no error.
    let (from, to) = (4, 2);
    assert!(part.sub(from..to).expect("sub").is_empty());
}
