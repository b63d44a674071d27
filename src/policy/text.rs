//! Texts of guests in the host's own log and messages: cut, and with nothing that a terminal obeys.

/// `bytes` as one line without control, formatting or bidirectional characters, cut after
/// `bytes_max` bytes of input with a notice of how much there was.
pub(super) fn escaped(bytes: &[u8], bytes_max: usize) -> String {
    let head = bytes.get(..bytes_max).unwrap_or(bytes);
    let mut line = String::with_capacity(head.len());
    for char in String::from_utf8_lossy(head).chars() {
        // Quotes need no escape, and a text in which they have one reads badly.
        if char == '"' || char == '\'' {
            line.push(char);
        } else {
            line.extend(char.escape_debug());
        }
    }
    if head.len() < bytes.len() {
        line.push_str(&format!(" (cut after {} of {} bytes)", head.len(), bytes.len()));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_cuts() {
        #[track_caller]
        fn check(bytes: &[u8], bytes_max: usize, expected: &str) {
            assert_eq!(expected, escaped(bytes, bytes_max));
        }
        check(b"it's \"fine\"", 100, "it's \"fine\"");
        check(b"a\nb\x1b[31m\0", 100, r"a\nb\u{1b}[31m\0");
        check("\u{202e}\u{200b}é".as_bytes(), 100, r"\u{202e}\u{200b}é");
        check(b"abcdef", 4, "abcd (cut after 4 of 6 bytes)");
        check("éé".as_bytes(), 3, "é\u{fffd} (cut after 3 of 4 bytes)");
        check(b"", 4, "");
    }
}
