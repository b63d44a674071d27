//! Texts of refusals that belong to no single code.

/// The `detail` of every refusal on the reads seam by an ask: never the prompt (ruling R15).
pub const READS_NEVER_ASK: &str = "this read needs an approval, and reads are never asked about";

/// The `detail` of a call refused by an unset chain because the tool declares itself destructive (ruling R14).
pub const DESTRUCTIVE_UNGUARDED: &str =
    "this tool declares itself destructive and no tools policy is set; start the gate with a tools policy";
