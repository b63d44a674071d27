//! Writes the frames of the shared cases as the first inputs of the fuzz targets, and shows that what must
//! hold for every frame holds for these.

use std::path::Path;
use std::{fs, io};

use base64::Engine as _;
use serde_json::Value;

/// Longer inputs teach a fuzzer nothing and slow it down.
const INPUT_BYTES_MAX: usize = 4096;

fn main() -> io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cases: Value = serde_json::from_slice(&fs::read(here.join("../tests/cases/wire.json"))?)?;
    let mut written = 0;
    for (number, case) in list(&cases).iter().enumerate() {
        let texts = |value: &Value| {
            list(value)
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        let mut frames: Vec<Vec<u8>> = Vec::new();
        let plain: Vec<String> = texts(&case["frames"]);
        frames.extend(plain.into_iter().map(String::into_bytes));
        let encoded: Vec<String> = texts(&case["frames_base64"]);
        for frame in encoded {
            let bytes = base64::engine::general_purpose::STANDARD.decode(frame);
            frames.push(bytes.map_err(io::Error::other)?);
        }
        let lines: Vec<String> = texts(&case["upstream"]["stdio_lines"]);
        let lines: Vec<Vec<u8>> = lines
            .into_iter()
            .map(|line| line.replace("@ID@", "7").into_bytes())
            .collect();
        lines
            .iter()
            .for_each(|line| gatewright_fuzz::upstream_frame(line));
        frames
            .iter()
            .for_each(|frame| gatewright_fuzz::client_frame(frame));
        written += write(&here.join("corpus/frame"), number, frames)?;
        written += write(&here.join("corpus/upstream_frame"), number, lines)?;
    }
    println!("{written} inputs");
    Ok(())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn write(folder: &Path, case: usize, inputs: impl IntoIterator<Item = Vec<u8>>) -> io::Result<usize> {
    fs::create_dir_all(folder)?;
    let mut written = 0;
    for (number, input) in inputs.into_iter().enumerate() {
        if input.len() <= INPUT_BYTES_MAX {
            fs::write(folder.join(format!("case-{case}-{number}")), input)?;
            written += 1;
        }
    }
    Ok(written)
}
