//! Newline framing: bytes in, lines out (rulings R11 and R24).

use bytes::{Bytes, BytesMut};

/// A line without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The line.
    Frame(Bytes),
    /// A line longer than the limit; what follows up to its end is skipped without being kept.
    TooLong,
}

/// Splits a stream into lines.
#[derive(Debug)]
pub struct LineSplitter {
    kept: BytesMut,
    /// Bytes of `kept` in which no line end stands.
    searched: usize,
    line_bytes_max: usize,
    skipping: bool,
    at_start: bool,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl LineSplitter {
    /// A splitter for lines of at most `line_bytes_max` bytes, their end not counted.
    #[must_use]
    pub fn new(line_bytes_max: usize) -> Self {
        Self {
            kept: BytesMut::new(),
            searched: 0,
            line_bytes_max,
            skipping: false,
            at_start: true,
        }
    }

    /// Feeds bytes; take the lines out before feeding more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
    }

    /// Takes out the next line that is complete, or that is too long already.
    #[expect(
        clippy::should_implement_trait,
        reason = "the end of the lines so far is not the end of the stream"
    )]
    pub fn next(&mut self) -> Option<Line> {
        loop {
            let unsearched = self.kept.get(self.searched..).unwrap_or_default();
            let Some(found) = memchr::memchr(b'\n', unsearched) else {
                self.searched = self.kept.len();
                return self.overlong();
            };
            let line = self.kept.split_to(self.searched + found + 1);
            self.searched = 0;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            let line = line.freeze();
            return Some(self.finished(line.slice(..line.len() - 1)));
        }
    }

    /// Takes out what stands after the last line end, at the end of the stream.
    pub fn finish(&mut self) -> Option<Line> {
        let rest = self.kept.split().freeze();
        self.searched = 0;
        if self.skipping || rest.is_empty() {
            None
        } else {
            Some(self.finished(rest))
        }
    }

    /// A line that is too long before its end was seen is reported once and kept no longer.
    fn overlong(&mut self) -> Option<Line> {
        // A carriage return before the end does not count, nor does the mark at the start of the stream.
        let slack = 1 + if self.at_start { BYTE_ORDER_MARK.len() } else { 0 };
        if self.skipping || self.line_bytes_max + slack < self.kept.len() {
            self.kept = BytesMut::new();
            self.searched = 0;
            self.at_start = false;
            return (!std::mem::replace(&mut self.skipping, true)).then_some(Line::TooLong);
        }
        None
    }

    fn finished(&mut self, mut line: Bytes) -> Line {
        if std::mem::take(&mut self.at_start) && line.starts_with(BYTE_ORDER_MARK) {
            line = line.slice(BYTE_ORDER_MARK.len()..);
        }
        if line.ends_with(b"\r") {
            line.truncate(line.len() - 1);
        }
        if self.line_bytes_max < line.len() {
            Line::TooLong
        } else {
            Line::Frame(line)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expected: &[&str]) {
        let mut splitter = LineSplitter::new(8);
        let mut lines = Vec::new();
        let mut take = |line: Line| {
            lines.push(match line {
                Line::Frame(line) => String::from_utf8(line.to_vec()).unwrap(),
                Line::TooLong => "(too long)".to_owned(),
            });
        };
        for piece in pieces {
            splitter.push(piece.as_bytes());
            while let Some(line) = splitter.next() {
                take(line);
            }
        }
        if let Some(line) = splitter.finish() {
            take(line);
        }
        assert_eq!(expected, lines);
    }

    #[test]
    fn lines() {
        check(&["a\nb\r\nc"], &["a", "b", "c"]);
        check(&["a", "b", "\n", "c\n"], &["ab", "c"]);
        check(&["\n\r\n"], &["", ""]);
        check(&["a\rb\n"], &["a\rb"]);
        check(&["12345678\n123456789\nx\n"], &["12345678", "(too long)", "x"]);
        check(&["12345678\r\n"], &["12345678"]);
        check(&["1234567890123", "4567", "8\nx\n"], &["(too long)", "x"]);
        check(&["123456789", "0", "1234567890", "\n\n"], &["(too long)", ""]);
        check(&["12345678901234567890"], &["(too long)"]);
        check(&["\u{feff}12345678\n\u{feff}a\n"], &["12345678", "\u{feff}a"]);
        check(&["\u{feff}", "a\n"], &["a"]);
        check(&[""], &[]);
    }

    #[test]
    fn an_endless_line_is_not_kept() {
        let mut splitter = LineSplitter::new(1024);
        for _ in 0..10_000 {
            splitter.push(&[b'x'; 1024]);
            while splitter.next().is_some() {}
            assert!(splitter.kept.capacity() <= 8 * 1024);
        }
    }
}
