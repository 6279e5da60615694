//! Limits of this process that memory meets.

use std::sync::OnceLock;

/// Returns the limit of mappings for a process (`vm.max_map_count`), as read first. If it cannot be read, the result is
/// 65530.
pub fn max_mappings() -> u64 {
    static COUNT: OnceLock<u64> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
        text.trim().parse().unwrap_or(65530)
    })
}

/// Says whether the kernel gives memfds huge pages: without a request (`within_size`, `always`, `force`), or with one,
/// if `asks` is set.
pub fn shmem_huge_pages(asks: bool) -> bool {
    let path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let unasked = ["[always]", "[within_size]", "[force]"];
    unasked.iter().any(|on| text.contains(on)) || asks && text.contains("[advise]")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_may_have_some_mappings() {
        assert!(super::max_mappings() > 0);
        // Either way it answers.
        assert!(super::shmem_huge_pages(true) || !super::shmem_huge_pages(false));
    }
}
