//! One path: which texts are taken for one, and what lies under what.

/// The segments of an absolute path, without empty ones and `.`.
///
/// Judges the text as it is. [`both_readings`] adds the reading of a server that decodes it.
///
/// # Errors
///
/// Says which doubt speaks against the text.
pub fn segments(text: &str) -> Result<Vec<&str>, &'static str> {
    if let Some(doubt) = text.chars().find_map(doubtful) {
        return Err(doubt);
    }
    let Some(rest) = text.strip_prefix('/') else {
        return Err("is not an absolute path");
    };
    // POSIX leaves the meaning of two leading slashes to the system.
    if rest.starts_with('/') {
        return Err("starts with two slashes");
    }
    let mut segments = Vec::new();
    for segment in rest.split('/') {
        match segment {
            "" | "." => {}
            // Some file systems drop trailing dots and spaces, so `.. ` may be a parent as well.
            dots if dots.trim_matches([' ', '.']).is_empty() => {
                return Err("has a segment of dots, which may be a parent folder");
            }
            _ => segments.push(segment),
        }
    }
    Ok(segments)
}

/// The segments of the text as it is, and those after one percent-decoding where that differs.
///
/// A server may decode or not, and both readings must be harmless. A text that a second decoding
/// would change again is meant to be decoded more often than anybody can follow.
///
/// # Errors
///
/// Says which doubt speaks against one of the readings.
pub fn both_readings(text: &str) -> Result<Vec<Vec<String>>, &'static str> {
    let owned = |segments: Vec<&str>| segments.into_iter().map(Into::into).collect();
    let raw = segments(text)?;
    let decoded = decode(text)?;
    if decoded == text {
        return Ok(vec![owned(raw)]);
    }
    if decode(&decoded)? != decoded {
        return Err("is percent-encoded more than once");
    }
    Ok(vec![owned(raw), owned(segments(&decoded)?)])
}

/// Whether `path` is `root` or lies below it: exact, segment by segment.
#[must_use]
pub fn is_under(path: &[String], root: &[String]) -> bool {
    path.starts_with(root)
}

/// A segment as a deny list sees it: without case, trailing dots and trailing spaces, which several
/// file systems ignore.
#[must_use]
pub fn folded(segment: &str) -> String {
    segment
        .trim_end_matches(['.', ' '])
        .chars()
        .flat_map(fold)
        .collect()
}

/// One character without case. By way of the capital, so that the long s and the Kelvin sign fold
/// to the letters that some systems take them for.
pub fn fold(character: char) -> impl Iterator<Item = char> {
    character.to_uppercase().flat_map(char::to_lowercase)
}

/// Why a character makes a path doubtful.
fn doubtful(character: char) -> Option<&'static str> {
    match character {
        '\\' => Some("has a backslash, which some systems take for a slash"),
        _ if character.is_control() => Some("has a control character"),
        // Soft hyphen, zero-width characters, bidi controls, line and paragraph separators, tags:
        // not seen by a person, and some of them dropped by file systems.
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => Some("has an invisible character"),
        _ if folds_to_dot_or_slash(character) => Some("has a character that may be read as a dot or a slash"),
        _ => None,
    }
}

/// Whether Unicode's compatibility folding (NFKC) turns the character into text with a dot, a slash
/// or a backslash. A table of its own, because the whole of NFKC is larger than this policy; a test
/// holds it against the whole.
fn folds_to_dot_or_slash(character: char) -> bool {
    matches!(
        character,
        '\u{2024}'..='\u{2026}'
            | '\u{2100}'..='\u{2101}'
            | '\u{2105}'..='\u{2106}'
            | '\u{2488}'..='\u{249b}'
            | '\u{33c2}'
            | '\u{33c7}'
            | '\u{33d8}'
            | '\u{fe19}'
            | '\u{fe30}'
            | '\u{fe52}'
            | '\u{fe68}'
            | '\u{ff0e}'..='\u{ff0f}'
            | '\u{ff3c}'
            | '\u{1f100}'
    )
}

/// Decodes every `%` that two hexadecimal digits follow, once. Any other `%` is itself.
fn decode(text: &str) -> Result<String, &'static str> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let encoded = match (first, after) {
            (b'%', [high, low, tail @ ..]) => digit(*high).zip(digit(*low)).map(|digits| (digits, tail)),
            _ => None,
        };
        match encoded {
            Some(((high, low), tail)) => {
                decoded.push(high << 4 | low);
                rest = tail;
            }
            None => {
                decoded.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8(decoded).map_err(|_| "is percent-encoded, and not UTF-8 when decoded")
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use unicode_normalization::UnicodeNormalization as _;

    use super::{both_readings, folded, folds_to_dot_or_slash, segments};

    #[test]
    fn paths() {
        #[track_caller]
        fn check(text: &str, expected: Result<&str, &str>) {
            assert_eq!(
                expected.map(Into::into),
                segments(text).map(|segments| segments.join("|"))
            );
        }
        check("/", Ok(""));
        check("/a//b/./c/", Ok("a|b|c"));
        check("/..a/b..", Ok("..a|b.."));
        check(
            "/a/...",
            Err("has a segment of dots, which may be a parent folder"),
        );
        check("/a/ ", Err("has a segment of dots, which may be a parent folder"));
        check(
            "/a/. /b",
            Err("has a segment of dots, which may be a parent folder"),
        );
        check("a", Err("is not an absolute path"));
        check("file:///a", Err("is not an absolute path"));
        check("/a\u{85}", Err("has a control character"));
        check("/a\u{200d}", Err("has an invisible character"));
        check(
            "/a\u{ff0f}b",
            Err("has a character that may be read as a dot or a slash"),
        );
    }

    #[test]
    fn decoding() {
        #[track_caller]
        fn check(text: &str, expected: Result<&str, &str>) {
            let readings = both_readings(text).map(|readings| {
                readings
                    .iter()
                    .map(|segments| segments.join("|"))
                    .collect::<Vec<_>>()
                    .join(" or ")
            });
            assert_eq!(expected.map(Into::into), readings);
        }
        check("/a/b", Ok("a|b"));
        check("/a%2fb", Ok("a%2fb or a|b"));
        check("/a%20b", Ok("a%20b or a b"));
        check("/100%", Ok("100%"));
        check("/100%2", Ok("100%2"));
        check("/%zz%+1", Ok("%zz%+1"));
        check("/%ff", Err("is percent-encoded, and not UTF-8 when decoded"));
        check(
            "/%5c",
            Err("has a backslash, which some systems take for a slash"),
        );
        check("/%252e", Err("is percent-encoded more than once"));
        check("/%25", Ok("%25 or %"));
        check(
            "/a/%2e%2e/b",
            Err("has a segment of dots, which may be a parent folder"),
        );
        check("%2fa", Err("is not an absolute path"));
        check("/%2fa", Err("starts with two slashes"));
    }

    #[test]
    fn folding() {
        assert_eq!("etc", folded("ETC. ."));
        assert_eq!(".ssh", folded(".\u{17f}\u{17f}h"));
        assert_eq!("k", folded("\u{212a}"));
    }

    #[test]
    fn the_table_of_look_alikes_is_that_of_unicode() {
        let expected = |character: &char| {
            [*character]
                .into_iter()
                .nfkc()
                .any(|part| matches!(part, '.' | '/' | '\\'))
        };
        let differing: Vec<_> = ('\u{80}'..=char::MAX)
            .filter(|character| expected(character) != folds_to_dot_or_slash(*character))
            .collect();
        assert!(differing.is_empty(), "{differing:?}");
    }
}
