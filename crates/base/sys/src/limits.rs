//! Limits of this process that memory meets.

use std::sync::OnceLock;

/// How many mappings a process may have (`vm.max_map_count`), as read first; 65530 where nobody says.
pub fn max_mappings() -> u64 {
    static COUNT: OnceLock<u64> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
        text.trim().parse().unwrap_or(65530)
    })
}

/// Does the kernel give memfds huge pages: without being asked for each (`within_size`, `always`, `force`), or where somebody `asks`?
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
