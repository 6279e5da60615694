//! The pages that `mkdocs.yml` lists.

/// Returns the pages in order. It reads the form that our file has, which is not all that YAML allows.
pub(super) fn pages(menu: &str) -> Vec<String> {
    let after = menu.lines().skip_while(|line| *line != "nav:").skip(1);
    let list = after.take_while(|line| line.is_empty() || line.starts_with([' ', '#']));
    let entries = list.filter_map(|line| line.trim_start().strip_prefix("- "));
    let pages = entries.filter_map(|entry| entry.rsplit(' ').next());
    let pages = pages.filter(|page| page.ends_with(".md"));
    pages.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn pages_of_all_sections_are_found_and_nothing_else() {
        let menu = "theme:\n  - x.md\nnav:\n  - Start: README.md\n  - More:\n      - A page: docs/a.md\n      - docs/b.md\nafter:\n  - c.md\n";
        assert_eq!(super::pages(menu), ["README.md", "docs/a.md", "docs/b.md"]);
    }
}
