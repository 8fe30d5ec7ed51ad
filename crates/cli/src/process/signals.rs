//! Names of signals.

use wire::v1::signal_process_request::Signal;

/// Names of the signals in messages.
const NAMES: &str = "HUP, INT, QUIT, KILL, USR1, USR2, TERM, CONT, STOP, TSTP";

/// Returns the signal of a name in any case, with or without `SIG`, or of a number.
pub(crate) fn parse(text: &str) -> Result<Signal, String> {
    let none = || {
        let known: Vec<_> = NAMES.split(", ").collect();
        format!(
            "cannot be sent ({}), with or without SIG, or a number such as 15",
            document::nearest(text, &known)
        )
    };
    let signal = if let Ok(number) = text.parse::<i32>() {
        Signal::try_from(number).ok()
    } else {
        let name = text.to_ascii_uppercase();
        Signal::from_str_name(name.strip_prefix("SIG").unwrap_or(&name))
    };
    signal.filter(|signal| *signal != Signal::Unspecified).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_signal_are_equal() {
        for (number, name) in (0..=64).filter_map(|number| Some((number, Signal::try_from(number).ok()?))) {
            let name = name.as_str_name();
            let spellings = [
                name.to_owned(),
                format!("SIG{name}"),
                name.to_lowercase(),
                format!("sig{}", name.to_lowercase()),
                format!("Sig{name}"),
                number.to_string(),
            ];
            for spelling in spellings {
                let expected = Signal::try_from(number).ok().filter(|_| number != 0);
                assert_eq!(parse(&spelling).ok(), expected, "{spelling}");
            }
            assert_eq!(NAMES.split(", ").any(|known| known == name), number != 0, "{name}");
        }
        assert!(parse("tremm").unwrap_err().contains("did you mean `TERM`?"));
        for none in ["", "SIG", "0", "-15", "15.0", "TERMINATE", "SIGSIGTERM", "UNSPECIFIED", "64", "RTMIN"] {
            assert!(parse(none).is_err(), "{none}");
        }
    }
}
