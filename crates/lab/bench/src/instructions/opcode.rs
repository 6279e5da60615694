//! The kinds of x86-64 instructions that matter here.

/// The longest instruction.
pub const LONGEST: usize = 15;
/// A trap.
pub const INT3: u8 = 0xcc;

/// Whether it holds the bus or waits for the store buffer: a `lock` prefix, an exchange with memory, `mfence`.
pub fn is_locked(bytes: &[u8]) -> bool {
    let (prefixes, rest) = split(bytes);
    match rest {
        _ if prefixes.contains(&0xf0) => true,
        [0x86 | 0x87, modrm, ..] => modrm >> 6 != 3,
        [0x0f, 0xae, 0xf0, ..] => true,
        _ => false,
    }
}

/// Whether it calls the kernel.
pub fn is_call(bytes: &[u8]) -> bool {
    matches!(split(bytes).1, [0x0f, 0x05, ..])
}

/// Prefixes, the REX byte with them, and what follows.
fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let is_prefix = |b: &&u8| {
        matches!(
            b,
            0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
        )
    };
    bytes.split_at(bytes.iter().take_while(is_prefix).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_lock() {
        let lock_xadd = [0xf0, 0x0f, 0xc1, 0x07];
        let xchg = [0x48, 0x87, 0x07];
        let mfence = [0x0f, 0xae, 0xf0];
        for one in [&lock_xadd[..], &xchg, &mfence] {
            assert!(is_locked(one), "{one:x?}");
        }
        let xchg_of_registers = [0x48, 0x87, 0xc7];
        let mov = [0x48, 0x89, 0x07];
        let lfence = [0x0f, 0xae, 0xe8];
        for one in [&xchg_of_registers[..], &mov, &lfence, &[]] {
            assert!(!is_locked(one), "{one:x?}");
        }
    }

    #[test]
    fn those_that_call_the_kernel() {
        assert!(is_call(&[0x0f, 0x05]) && !is_call(&[0x0f, 0x0b]));
    }
}
