//! Huge pages: of the kernel's settings for shared memory only one works together with `fallocate`.

use super::finding::Finding;
use super::proc;

const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";

pub(super) fn look() -> Vec<Finding> {
    let Some(setting) = proc::text(format!("{FOLDER}/shmem_enabled")) else {
        return vec![Finding::weak(
            "shmem setting",
            "not built in",
            COST,
            "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
        )];
    };
    let chosen = proc::chosen(&setting).unwrap_or("unknown");
    let mut found = vec![shmem(chosen)];
    if let Some(pmd) = proc::number(format!("{FOLDER}/hpage_pmd_size")) {
        found.push(Finding::ok("size", crate::output::size(pmd)));
    }
    found
}

const COST: &str = "granting memory takes about 2700 us/MiB where huge pages do not apply, 90 us/MiB where they do; \
                    filling and reading a large buffer misses the TLB more often";

fn shmem(chosen: &str) -> Finding {
    let name = "shmem setting";
    let fix = format!("echo within_size > {FOLDER}/shmem_enabled (as root; until the next boot)");
    match chosen {
        "within_size" => Finding::ok(name, "within_size"),
        other => Finding::weak(name, other, COST, &fix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn only_within_size_is_right() {
        assert_eq!(shmem("within_size").state, State::Ok);
        for other in ["never", "always", "advise"] {
            assert_eq!(shmem(other).state, State::Weak, "{other}");
        }
    }
}
