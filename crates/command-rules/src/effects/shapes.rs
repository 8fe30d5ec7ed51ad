//! The shapes of command lines, and how one is compared with its words.

/// A command line of options and operands. Options come first, as not every program finds them after an operand.
pub(super) struct Shape {
    programs: &'static [&'static str],
    /// Letters of options without a value, alone or together in one word.
    flags: &'static str,
    /// Letters of options with a value: the next word, or the rest of this one if it has only letters and digits.
    valued: &'static str,
    /// Whole words, which take no value, with spaces between them.
    words: &'static str,
    /// Whole words whose value is the next word, or is in the same word after `=`.
    valued_words: &'static str,
    /// Signs that make a number an option: `-5`, `+5`.
    numbers: &'static [char],
    /// The first word may be letters of options without a dash.
    bare: bool,
}

/// The words of a command line that has a shape.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) operands: Vec<&'a str>,
    /// The values of options, in their order.
    pub(super) values: Vec<&'a str>,
}

const NONE: Shape =
    Shape { programs: &[], flags: "", valued: "", words: "", valued_words: "", numbers: &[], bare: false };

/// Programs that only read, with any arguments that have the shape.
pub(super) const READERS: [Shape; 13] = [
    Shape {
        programs: &["cat"],
        flags: "AbeEnstTuv",
        words: "--number --number-nonblank --show-all --squeeze-blank --version --help",
        ..NONE
    },
    Shape { programs: &["head"], numbers: &['-'], ..ENDS },
    // Neither `-f` nor `-F`, which wait for ever.
    Shape { programs: &["tail"], numbers: &['-', '+'], ..ENDS },
    Shape {
        programs: &["wc"],
        flags: "lwcmL",
        words: "--lines --words --bytes --chars --max-line-length",
        ..NONE
    },
    Shape {
        programs: &["cut"],
        flags: "ns",
        valued: "bcdf",
        words: "--complement --only-delimited",
        valued_words: "--bytes --characters --delimiter --fields --output-delimiter",
        ..NONE
    },
    Shape { programs: &["tr"], flags: "cCds", words: "--complement --delete", ..NONE },
    // Neither `-f`, which reads another file, nor `-R`, which follows links out of the mounts.
    Shape {
        programs: &["grep", "egrep", "fgrep"],
        flags: "EFGPivywxcLloqsbHhnTZzaUIr0123456789",
        valued: "emABC",
        words: "--extended-regexp --fixed-strings --ignore-case --invert-match --word-regexp --count \
            --files-with-matches --only-matching --line-number --recursive --color=never \
            --color=always",
        valued_words: "--regexp --max-count --after-context --before-context --context --include --exclude \
            --exclude-dir",
        ..NONE
    },
    Shape {
        programs: &["ls"],
        flags: "aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1",
        words: "--all --almost-all --human-readable --recursive --color=never --color=always",
        ..NONE
    },
    Shape { programs: &["stat"], flags: "Lft", valued: "c", ..NONE },
    Shape {
        programs: &["du"],
        flags: "abchklmsx",
        valued: "d",
        words: "--all --apparent-size --human-readable --summarize",
        valued_words: "--max-depth",
        ..NONE
    },
    Shape { programs: &["cmp"], flags: "bls", ..NONE },
    Shape { programs: &["comm"], flags: "123", ..NONE },
    Shape { programs: &["md5sum", "sha1sum", "sha256sum", "sha512sum"], flags: "bt", ..NONE },
];

/// The options of `head` and `tail`.
const ENDS: Shape = Shape {
    flags: "qvz",
    valued: "nc",
    words: "--quiet --silent --verbose",
    valued_words: "--lines --bytes",
    ..NONE
};

/// Programs that run nothing and delete nothing with arguments that have the shape, but may with others.
pub(super) const CHANGERS: [Shape; 3] = [
    Shape {
        programs: &["sort"],
        flags: "bdfgiMhnRrVcCmsuz",
        valued: "ktSo",
        words: "--check --numeric-sort --reverse --stable --unique --version-sort",
        valued_words: "--field-separator --key --output --sort",
        ..NONE
    },
    Shape {
        programs: &["diff"],
        flags: "abBcdeEiNnpqrstTuwyZ",
        valued: "CLUWx",
        words: "--brief --recursive --side-by-side --unified --color=never --color=always",
        valued_words: "--exclude --label --width",
        ..NONE
    },
    Shape {
        programs: &["tar", "gtar"],
        flags: "ctxruvzjJakmpOPh",
        valued: "fC",
        words: "--create --extract --list --gzip --xz --zstd --verbose",
        valued_words: "--directory --exclude --file --strip-components",
        bare: true,
        ..NONE
    },
];

pub(super) const SED: Shape = Shape {
    flags: "nErsuz",
    valued: "e",
    words: "-i --in-place --quiet --silent --regexp-extended",
    valued_words: "--expression",
    ..NONE
};

/// Returns the shape of the program with this lower-case base name.
pub(super) fn of(shapes: &'static [Shape], base_name: &str) -> Option<&'static Shape> {
    shapes.iter().find(|shape| shape.programs.contains(&base_name))
}

impl Shape {
    /// Compares the arguments with the shape. The error is the first word that does not fit.
    pub(super) fn read<'a>(&self, args: &'a [String]) -> Result<Line<'a>, &'a str> {
        let mut line = Line::default();
        let mut rest = args.iter().map(String::as_str);
        while let Some(word) = rest.next() {
            if word == "--" {
                line.operands.extend(rest);
                return Ok(line);
            }
            let is_option = word.len() > 1 && word.starts_with('-') || word.starts_with('+');
            if !is_option {
                if self.bare && line == Line::default() && !self.has_letters(word) {
                    return Err(word);
                }
                line.operands.push(word);
                continue;
            }
            if !line.operands.is_empty() {
                return Err(word);
            }
            match self.option(word).ok_or(word)? {
                Value::None => {}
                Value::Here(value) => line.values.push(value),
                Value::Next => line.values.push(rest.next().ok_or(word)?),
            }
        }
        Ok(line)
    }

    fn has_letters(&self, word: &str) -> bool {
        word.chars().all(|letter| self.flags.contains(letter) || self.valued.contains(letter))
    }

    /// Returns the place of the value of an option, or `None` if the word is not on the list.
    fn option<'a>(&self, word: &'a str) -> Option<Value<'a>> {
        let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        if is_among(self.words, word) || word.strip_prefix(self.numbers).is_some_and(is_number) {
            return Some(Value::None);
        }
        if word.starts_with("--") {
            let (name, value) =
                word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            return is_among(self.valued_words, name).then(|| value.map_or(Value::Next, Value::Here));
        }
        let cluster = word.strip_prefix('-')?;
        let valued = cluster.trim_start_matches(|letter| self.flags.contains(letter));
        let Some(letter) = valued.chars().next() else { return Some(Value::None) };
        let value = valued.get(letter.len_utf8()..)?;
        match self.valued.contains(letter) {
            true if value.is_empty() => Some(Value::Next),
            true if value.chars().all(is_plain) => Some(Value::Here(value)),
            _ => None,
        }
    }
}

/// Returns true if a word is in a list with spaces between its words.
pub(super) fn is_among(list: &str, word: &str) -> bool {
    list.split(' ').any(|listed| listed == word)
}

/// Place of the value of an option.
enum Value<'a> {
    None,
    Here(&'a str),
    Next,
}

/// Returns true for a character of a value that may be attached to a letter: a number, a range, a key.
fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, ',' | '.' | '-' | '+' | ':')
}
