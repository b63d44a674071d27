//! Server-sent events: bytes in, events out (WHATWG HTML, "Interpreting an event stream").

use bytes::{BufMut as _, Bytes, BytesMut};

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its data; several `data` fields are joined with line breaks.
    pub data: Bytes,
    /// The id that names this place in the stream, if the stream has given one so far.
    pub id: Option<String>,
}

/// An event is longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {0} bytes")]
pub struct TooLong(pub usize);

/// What comes of an event that is taken before it is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventPiece {
    /// More of its data.
    Data(Bytes),
    /// The event is complete.
    End,
}

/// Splits a stream into events.
#[derive(Debug)]
pub struct EventSplitter {
    kept: BytesMut,
    /// Bytes of `kept` in which no line end stands.
    searched: usize,
    data: BytesMut,
    has_data: bool,
    id: Option<String>,
    retry_ms: Option<u64>,
    event_bytes_max: usize,
    at_start: bool,
    /// The last line ended with CR, so that an LF that follows belongs to it.
    after_cr: bool,
    /// The start of a `data` line was taken out, and its end is still to come.
    in_data: bool,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl EventSplitter {
    /// A splitter for events of at most so many bytes.
    #[must_use]
    pub fn new(event_bytes_max: usize) -> Self {
        Self {
            kept: BytesMut::new(),
            searched: 0,
            data: BytesMut::new(),
            has_data: false,
            id: None,
            retry_ms: None,
            event_bytes_max,
            at_start: true,
            after_cr: false,
            in_data: false,
        }
    }

    /// Feeds bytes; take the events out before feeding more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
    }

    /// The id that the stream has given last.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// How long the stream wants a client to wait before it comes again, in milliseconds.
    #[must_use]
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Takes out the next event that is complete. What stands at the end without an empty line is no event.
    ///
    /// # Errors
    ///
    /// [`TooLong`]; nothing more can be read then.
    pub fn next_event(&mut self) -> Result<Option<Event>, TooLong> {
        loop {
            if self.event_bytes_max < self.kept.len().max(self.data.len()) {
                return Err(TooLong(self.event_bytes_max));
            }
            let Some(line) = self.line() else {
                return Ok(None);
            };
            if !line.is_empty() {
                self.field(&line);
                continue;
            }
            let (data, has_data) = (self.data.split().freeze(), std::mem::take(&mut self.has_data));
            if has_data {
                let id = self.id.clone();
                return Ok(Some(Event { data, id }));
            }
        }
    }

    /// The data of the event that is not complete yet, as far as it has come; what stands there may be a part of one.
    #[must_use]
    pub fn unfinished(&self) -> Bytes {
        let mut data = self.data.clone();
        if let Some(value) = data_of(&self.kept) {
            if self.has_data {
                data.put_u8(b'\n');
            }
            data.put_slice(value);
        }
        data.freeze()
    }

    /// How many bytes wait for the end of their event.
    #[must_use]
    pub fn unfinished_bytes(&self) -> usize {
        self.kept.len() + self.data.len()
    }

    /// Takes out what has come of an event before all of it has; once this was begun, it must go on until
    /// [`EventPiece::End`]. The pieces are the data that [`Self::next_event`] would have given.
    ///
    /// # Errors
    ///
    /// [`TooLong`], of a line that is no data; nothing more can be read then.
    pub fn next_piece(&mut self) -> Result<Option<EventPiece>, TooLong> {
        loop {
            if !self.data.is_empty() {
                return Ok(Some(EventPiece::Data(self.data.split().freeze())));
            }
            if self.in_data {
                let found = memchr::memchr2(b'\n', b'\r', &self.kept);
                self.searched = 0;
                let value = match found {
                    Some(_) => self.line().unwrap_or_default(),
                    None => self.kept.split().freeze(),
                };
                self.in_data = found.is_none();
                match (value.is_empty(), found) {
                    (false, _) => return Ok(Some(EventPiece::Data(value))),
                    (true, Some(_)) => continue,
                    (true, None) => return Ok(None),
                }
            }
            if self.after_cr && self.kept.starts_with(b"\n") {
                self.after_cr = false;
                self.searched = 0;
                drop(self.kept.split_to(1));
            }
            if let Some(value) = data_of(&self.kept) {
                let start = self.kept.len() - value.len();
                drop(self.kept.split_to(start));
                (self.searched, self.at_start, self.after_cr, self.in_data) = (0, false, false, true);
                if std::mem::replace(&mut self.has_data, true) {
                    return Ok(Some(EventPiece::Data(Bytes::from_static(b"\n"))));
                }
                continue;
            }
            if self.event_bytes_max < self.kept.len() {
                return Err(TooLong(self.event_bytes_max));
            }
            match self.line() {
                None => return Ok(None),
                Some(line) if line.is_empty() && std::mem::take(&mut self.has_data) => {
                    return Ok(Some(EventPiece::End));
                }
                Some(line) => self.field(&line),
            }
        }
    }

    /// The next line, without its end.
    fn line(&mut self) -> Option<Bytes> {
        if self.at_start {
            if self.kept.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(&self.kept) {
                return None;
            }
            if self.kept.starts_with(BYTE_ORDER_MARK) {
                drop(self.kept.split_to(BYTE_ORDER_MARK.len()));
            }
            self.at_start = false;
        }
        if std::mem::take(&mut self.after_cr) {
            match self.kept.first() {
                Some(b'\n') => drop(self.kept.split_to(1)),
                Some(_) => {}
                None => {
                    self.after_cr = true;
                    return None;
                }
            }
        }
        let unsearched = self.kept.get(self.searched..).unwrap_or_default();
        let Some(found) = memchr::memchr2(b'\n', b'\r', unsearched) else {
            self.searched = self.kept.len();
            return None;
        };
        let end = self.searched + found;
        self.searched = 0;
        self.after_cr = self.kept.get(end) == Some(&b'\r');
        let line = self.kept.split_to(end).freeze();
        drop(self.kept.split_to(1));
        Some(line)
    }

    fn field(&mut self, line: &Bytes) {
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let name = line.get(..colon).unwrap_or_default();
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.put_u8(b'\n');
                }
                self.data.put_slice(value);
            }
            b"id" if !value.contains(&0) => self.id = std::str::from_utf8(value).ok().map(str::to_owned),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.retry_ms = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            }
            _ => {}
        }
    }
}

/// What has come of the value of a `data` line, once it is certain that it is one.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    let value = line.strip_prefix(b"data:")?;
    match value.first()? {
        b' ' => value.get(1..),
        _ => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expected: &[&str]) {
        let mut splitter = EventSplitter::new(64);
        let mut events = Vec::new();
        for piece in pieces {
            splitter.push(piece.as_bytes());
            loop {
                match splitter.next_event() {
                    Ok(Some(event)) => events.push(String::from_utf8(event.data.to_vec()).unwrap()),
                    Ok(None) => break,
                    Err(TooLong(_)) => {
                        events.push("(too long)".to_owned());
                        break;
                    }
                }
            }
        }
        assert_eq!(expected, events, "{pieces:?}");
        if let [whole] = pieces
            && whole.len() < 64
        {
            let single: Vec<String> = whole.chars().map(String::from).collect();
            let single: Vec<&str> = single.iter().map(String::as_str).collect();
            if 1 < single.len() {
                check(&single, expected);
            }
        }
    }

    #[test]
    fn events() {
        check(&["data: a\n\n"], &["a"]);
        check(&["data:a\ndata: b\n\n"], &["a\nb"]);
        check(&["event: message\r\ndata: a\r\n\r\ndata: b\r\n\r\n"], &["a", "b"]);
        check(&["data: a\r\rdata: b\r\r"], &["a", "b"]);
        check(&[": comment\n\ndata: a\n\n"], &["a"]);
        check(&["id: 1\nretry: 5\n\ndata: a\n\n"], &["a"]);
        check(&["data\n\n"], &[""]);
        check(&["data: a"], &[]);
        check(&["data: a\n"], &[]);
        check(&["\u{feff}data: a\n\n"], &["a"]);
        check(&["data:  a\n\n"], &[" a"]);
        check(&[&format!("data: {}\n\n", "x".repeat(90))], &["(too long)"]);
    }

    /// All data of the first event, taken out as it comes in parts of `size` bytes; none when it has no end.
    fn in_pieces(stream: &str, size: usize) -> Option<String> {
        let mut splitter = EventSplitter::new(1024);
        let mut data = Vec::new();
        for part in stream.as_bytes().chunks(size) {
            splitter.push(part);
            while let Some(piece) = splitter.next_piece().unwrap() {
                match piece {
                    EventPiece::Data(bytes) => data.extend_from_slice(&bytes),
                    EventPiece::End => return String::from_utf8(data).ok(),
                }
            }
        }
        None
    }

    proptest::proptest! {
        #[test]
        fn pieces_are_the_event(
            stream in "((data:? ?[ax\u{e9}:]{0,9}|id: ?[0-9]|: c|event: m|x)(\r\n|\n|\r)){0,5}(\r\n|\n|\r)(\n)?",
            size in 1_usize..12,
        ) {
            let mut splitter = EventSplitter::new(1024);
            splitter.push(stream.as_bytes());
            let event = splitter.next_event().unwrap();
            let whole = event.map(|event| String::from_utf8(event.data.to_vec()).unwrap());
            proptest::prop_assert_eq!(whole, in_pieces(&stream, size), "{:?}", stream);
        }
    }

    #[test]
    fn what_has_come_of_an_event() {
        let mut splitter = EventSplitter::new(1024);
        splitter.push(b"event: m\ndata: {\ndata: \"a");
        assert_eq!(Ok(None), splitter.next_event());
        assert_eq!("{\n\"a", splitter.unfinished());
    }

    #[test]
    fn a_place_in_the_stream() {
        let mut splitter = EventSplitter::new(1024);
        splitter.push(b"id: 7\nretry: 250\ndata: a\n\n");
        let event = splitter.next_event().unwrap().unwrap();
        assert_eq!(Some("7"), event.id.as_deref());
        assert_eq!((Some("7"), Some(250)), (splitter.last_id(), splitter.retry_ms()));
    }
}
