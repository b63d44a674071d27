//! Names and globs: `*` is any run of characters, `?` is one character, nothing else is special.

/// Whether the whole of `name` is what `pattern` says. Exact in case and in spelling: no Unicode
/// normalisation, so a name that only looks like a listed one is not listed.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut pattern = pattern.chars();
    let mut name = name.chars();
    // Where to resume when the text after the last `*` does not fit: behind that `*`, and one
    // character further in the name. Earlier stars never need another try, so this is quadratic
    // at worst, and a hostile name cannot make it slower.
    let mut resume = None;
    loop {
        let before = name.clone();
        let fits = match (pattern.next(), name.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                name = before;
                resume = Some((pattern.clone(), name.clone()));
                continue;
            }
            (Some('?'), Some(_)) => true,
            (Some(wanted), Some(found)) => wanted == found,
            (Some(_), None) => return false,
            (None, Some(_)) => false,
        };
        if !fits {
            let Some((star, rest)) = &mut resume else {
                return false;
            };
            if rest.next().is_none() {
                return false;
            }
            (pattern, name) = (star.clone(), rest.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn globs() {
        #[track_caller]
        fn check(pattern: &str, name: &str, expected: bool) {
            assert_eq!(expected, matches(pattern, name), "{pattern} {name}");
        }
        check("read_file", "read_file", true);
        check("read_file", "Read_file", false);
        check("read_file", "read_file ", false);
        check("read_*", "read_file", true);
        check("read_*", "read_", true);
        check("read_*", "write_file", false);
        check("*", "", true);
        check("*", "anything\n", true);
        check("*_file", "read_file", true);
        check("*_file", "read_file_file", true);
        check("*_file", "read_files", false);
        check("a*b*c", "aXbYbZc", true);
        check("a*b*c", "aXbYbZ", false);
        check("**a**", "bab", true);
        check("file?", "file1", true);
        check("file?", "fileé", true);
        check("file?", "file", false);
        check("file?", "file12", false);
        check("?*?", "a", false);
        check("[ab]", "a", false);
        check("a.c", "abc", false);
        check("café", "cafe\u{301}", false);
        check("", "", true);
        check("", "a", false);
    }

    #[test]
    fn a_hostile_name_costs_little() {
        let name = "a".repeat(128);
        assert!(!matches(&format!("{}b", "*a".repeat(60)), &name));
    }
}
