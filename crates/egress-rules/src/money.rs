//! Amounts of US dollars.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Millionths of a dollar.
const MICRO: u64 = 1_000_000;
/// Digits after the decimal point.
const PLACES: usize = 6;
/// Largest amount, dollars.
const MOST: u64 = 1_000_000_000;

/// Millionths of a US dollar. It is written as a decimal number of dollars: `"5"`, `"0.25"`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroUsd(pub u64);

impl MicroUsd {
    /// Parses dollars with at most six places, such as `5`, `5.00` or `0.000001`.
    pub fn parse(text: &str) -> Result<Self, BadAmount> {
        let (whole, places) = match text.split_once('.') {
            Some((_, "")) => return Err(BadAmount),
            Some((whole, places)) => (whole, places),
            None => (text, ""),
        };
        let are_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || places.len() > PLACES || !are_digits(whole) || !are_digits(places) {
            return Err(BadAmount);
        }
        let whole: u64 = whole.parse().map_err(|_| BadAmount)?;
        let micro: u64 = format!("{places:0<PLACES$}").parse().map_err(|_| BadAmount)?;
        let amount = whole.checked_mul(MICRO).and_then(|dollars| dollars.checked_add(micro));
        amount.filter(|amount| *amount <= MOST * MICRO).map(Self).ok_or(BadAmount)
    }
}

impl fmt::Display for MicroUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, micro) = (self.0 / MICRO, self.0 % MICRO);
        if micro == 0 {
            return write!(f, "{whole}");
        }
        let places = format!("{micro:0PLACES$}");
        write!(f, "{whole}.{}", places.trim_end_matches('0'))
    }
}

impl Serialize for MicroUsd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MicroUsd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Dollars)
    }
}

/// Reads an amount from a text or a number.
struct Dollars;

impl Visitor<'_> for Dollars {
    type Value = MicroUsd;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dollars, such as \"5.00\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<MicroUsd, E> {
        MicroUsd::parse(text).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<MicroUsd, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<MicroUsd, E> {
        // The shortest decimal number that means it, without an exponent.
        self.visit_str(&number.to_string())
    }
}

/// A text that is no amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be US dollars up to {MOST} with at most {PLACES} places, such as `5.00`")]
pub struct BadAmount;

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    #[test]
    fn an_amount_is_read_from_text_and_numbers_and_has_one_form() {
        for (value, micro, text) in [
            (json!("5.00"), 5_000_000, "5"),
            (json!("0.25"), 250_000, "0.25"),
            (json!("0.000001"), 1, "0.000001"),
            (json!("007.100"), 7_100_000, "7.1"),
            (json!("1000000000"), 1_000_000_000_000_000, "1000000000"),
            (json!(5), 5_000_000, "5"),
            (json!(0.1), 100_000, "0.1"),
            (json!(12.5), 12_500_000, "12.5"),
        ] {
            let amount: MicroUsd = from_value(value).unwrap();
            assert_eq!((amount, amount.to_string().as_str()), (MicroUsd(micro), text));
            assert_eq!(from_value::<MicroUsd>(json!(amount)).unwrap(), amount);
        }
    }

    #[test]
    fn other_texts_and_numbers_are_no_amounts() {
        for bad in [
            json!(""),
            json!("."),
            json!("5."),
            json!(".5"),
            json!("-5"),
            json!("+5"),
            json!("5,00"),
            json!("$5"),
            json!("5e3"),
            json!("5 "),
            json!("0.0000001"),
            json!("1000000000.000001"),
            json!("99999999999999999999999"),
            json!("٥"),
            json!(-1),
            json!(0.000_000_1),
            json!(1e12),
            json!(true),
            Value::Null,
        ] {
            assert!(from_value::<MicroUsd>(bad.clone()).is_err(), "{bad}");
        }
    }
}
