//! The known programs and their options: GNU's from their manuals, busybox's from its usage texts.

use super::options::Code;
use super::options::Does::{First, Nothing, Reads, Runs, Unknown, Writes};
use super::options::Operands::{
    Archive, FileThenOutput, Files, FilesAndCounts, Outputs, TextThenFiles, Texts, Writes as Written,
};
use super::options::Takes::{Attached, Nothing as Flag, Value};
use super::options::{Does, Operands, Options, Program, Takes};

const fn row(takes: Takes, does: Does, short: &'static str, long: &'static str) -> Options {
    Options { takes, does, short, long }
}

const fn program(operands: Operands, options: &'static [Options]) -> Program {
    Program { options, operands }
}

/// Options of every GNU program.
const TALK: Options = row(Flag, Nothing, "", "help version");

const CAT: Program = program(
    Files,
    &[
        TALK,
        row(
            Flag,
            Nothing,
            "AbeEnstTuv",
            "show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting",
        ),
    ],
);

const HEAD: Program = program(
    FilesAndCounts { plus: false },
    &[
        TALK,
        row(Flag, Nothing, "qvz", "quiet silent verbose zero-terminated"),
        row(Value, Nothing, "nc", "lines bytes"),
    ],
);

const TAIL: Program = program(
    FilesAndCounts { plus: true },
    &[
        TALK,
        row(Flag, Nothing, "qvz", "quiet silent verbose zero-terminated"),
        row(Value, Nothing, "nc", "lines bytes"),
        // These wait for ever, or watch processes.
        row(Flag, Unknown, "fF", "retry"),
        row(Attached, Unknown, "", "follow"),
        row(Value, Unknown, "s", "pid sleep-interval max-unchanged-stats"),
    ],
);

const WC: Program = program(
    Files,
    &[
        TALK,
        row(Flag, Nothing, "lwcmL", "lines words bytes chars max-line-length"),
        row(Value, Nothing, "", "total"),
        // The file names that it reads can point anywhere.
        row(Value, Unknown, "", "files0-from"),
    ],
);

const SORT: Program = program(
    Files,
    &[
        TALK,
        row(
            Flag,
            Nothing,
            "bdfgiMhnRrVcCmsuz",
            "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting month-sort \
         human-numeric-sort numeric-sort random-sort reverse version-sort debug merge stable unique zero-terminated",
        ),
        row(Value, Nothing, "ktS", "key field-separator buffer-size batch-size parallel sort"),
        row(Attached, Nothing, "", "check"),
        row(Value, Reads, "", "random-source"),
        row(Value, Writes, "o", "output"),
        row(Value, Runs, "", "compress-program"),
        row(Value, Unknown, "T", "temporary-directory files0-from"),
    ],
);

const UNIQ: Program = program(
    FileThenOutput,
    &[
        TALK,
        row(Flag, Nothing, "cdDiuz", "count repeated ignore-case unique zero-terminated"),
        row(Value, Nothing, "fsw", "skip-fields skip-chars check-chars"),
        row(Attached, Nothing, "", "all-repeated group"),
    ],
);

const CUT: Program = program(
    Files,
    &[
        TALK,
        row(Flag, Nothing, "nsz", "complement only-delimited zero-terminated"),
        row(Value, Nothing, "bcdf", "bytes characters delimiter fields output-delimiter"),
    ],
);

const TR: Program =
    program(Texts, &[TALK, row(Flag, Nothing, "cCdst", "complement delete squeeze-repeats truncate-set1")]);

const GREP: Program = program(
    TextThenFiles(Code::None),
    &[
        TALK,
        row(
            Flag,
            Nothing,
            "EFGPivywxcLloqsbHhnTZzaUIur0123456789",
            "extended-regexp fixed-strings basic-regexp perl-regexp ignore-case no-ignore-case invert-match word-regexp \
         line-regexp count files-without-match files-with-matches only-matching quiet silent no-messages byte-offset \
         with-filename no-filename line-number initial-tab null null-data text binary unix-byte-offsets recursive \
         line-buffered",
        ),
        row(
            Value,
            Nothing,
            "mABCdD",
            "max-count after-context before-context context directories devices include exclude exclude-dir binary-files label",
        ),
        row(Attached, Nothing, "", "color colour"),
        row(Value, First, "e", "regexp"),
        row(Value, Unknown, "f", "file"),
        row(Value, Reads, "", "exclude-from"),
        // Follows links out of the mounts.
        row(Flag, Unknown, "R", "dereference-recursive"),
    ],
);

const LS: Program = program(
    Files,
    &[
        TALK,
        row(
            Flag,
            Nothing,
            "aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1",
            "all almost-all author escape ignore-backups directory dired file-type full-time group-directories-first no-group \
         human-readable si dereference dereference-command-line inode kibibytes literal numeric-uid-gid hide-control-chars \
         show-control-chars quote-name reverse recursive size context zero",
        ),
        row(
            Value,
            Nothing,
            "ITw",
            "block-size format hide indicator-style ignore quoting-style sort time time-style tabsize width",
        ),
        row(Attached, Nothing, "", "color classify hyperlink"),
    ],
);

const STAT: Program = program(
    Files,
    &[
        TALK,
        row(Flag, Nothing, "Lft", "dereference file-system terse"),
        row(Value, Nothing, "c", "format printf cached"),
    ],
);

const DU: Program = program(
    Files,
    &[
        TALK,
        row(
            Flag,
            Nothing,
            "0abchklmPSsx",
            "null all apparent-size bytes total human-readable inodes no-dereference separate-dirs summarize si one-file-system",
        ),
        row(Value, Nothing, "Bdt", "block-size max-depth threshold exclude time-style"),
        row(Attached, Nothing, "", "time"),
        row(Value, Reads, "X", "exclude-from"),
        row(Flag, Unknown, "DHL", "dereference dereference-args"),
        row(Value, Unknown, "", "files0-from"),
    ],
);

const DIFF: Program = program(
    Files,
    &[
        TALK,
        row(
            Flag,
            Nothing,
            "abBcdeEiNnpqrstTuwyZ",
            "normal brief report-identical-files ed rcs side-by-side left-column suppress-common-lines show-c-function \
         expand-tabs initial-tab suppress-blank-empty recursive no-dereference new-file unidirectional-new-file \
         ignore-file-name-case no-ignore-file-name-case ignore-case ignore-tab-expansion ignore-trailing-space \
         ignore-space-change ignore-all-space ignore-blank-lines text strip-trailing-cr minimal speed-large-files",
        ),
        row(
            Value,
            Nothing,
            "CDFILSUWx",
            "show-function-line label width tabsize starting-file exclude ignore-matching-lines ifdef palette horizon-lines",
        ),
        row(Attached, Nothing, "", "context unified color"),
        row(Value, Reads, "X", "exclude-from from-file to-file"),
        // Paginates with `pr`.
        row(Flag, Runs, "l", "paginate"),
    ],
);

const CMP: Program = program(
    Files,
    &[
        TALK,
        row(Flag, Nothing, "bls", "print-bytes verbose quiet silent"),
        row(Value, Nothing, "in", "ignore-initial bytes"),
    ],
);

const COMM: Program = program(
    Files,
    &[
        TALK,
        row(Flag, Nothing, "123z", "check-order nocheck-order total zero-terminated"),
        row(Value, Nothing, "", "output-delimiter"),
    ],
);

const DIGEST: Program = program(
    Files,
    &[
        TALK,
        row(Flag, Nothing, "btwz", "binary text tag zero warn"),
        // The file names in a list can point anywhere.
        row(Flag, Unknown, "c", "check"),
    ],
);

const SED: Program = program(
    TextThenFiles(Code::Sed),
    &[
        TALK,
        row(
            Flag,
            Nothing,
            "nErsuz",
            "quiet silent regexp-extended separate unbuffered null-data zero-terminated posix debug sandbox follow-symlinks",
        ),
        row(Value, Nothing, "l", "line-length"),
        row(Value, First, "e", "expression"),
        row(Value, Unknown, "f", "file"),
        row(Attached, Writes, "i", "in-place"),
    ],
);

const AWK: Program = program(
    TextThenFiles(Code::Awk),
    &[
        row(Value, Nothing, "Fv", "field-separator assign"),
        row(Value, First, "e", "source"),
        row(Attached, Writes, "odp", "pretty-print dump-variables profile"),
        row(Value, Unknown, "fEilW", "file exec include load"),
    ],
);

const TAR: Program = program(
    Archive,
    &[
        row(
            Value,
            Unknown,
            "fCTXbgHKLNV",
            "file directory files-from exclude-from exclude strip-components transform",
        ),
        row(Flag, Unknown, "t", "list"),
        row(Attached, Unknown, "", "checkpoint"),
        row(Flag, Writes, "xcruA", "extract get create append update catenate concatenate delete"),
        row(
            Value,
            Runs,
            "IF",
            "use-compress-program to-command checkpoint-action info-script new-volume-script rsh-command rmt-command",
        ),
    ],
);

const TEE: Program = program(
    Outputs,
    &[
        TALK,
        row(Flag, Nothing, "aip", "append ignore-interrupts"),
        row(Attached, Nothing, "", "output-error"),
    ],
);

/// Programs that only write.
const WRITER: Program = program(Written, &[]);

pub(super) fn program_named(base_name: &str) -> Option<&'static Program> {
    Some(match base_name {
        "cat" => &CAT,
        "head" => &HEAD,
        "tail" => &TAIL,
        "wc" => &WC,
        "sort" => &SORT,
        "uniq" => &UNIQ,
        "cut" => &CUT,
        "tr" => &TR,
        "grep" | "egrep" | "fgrep" => &GREP,
        "ls" => &LS,
        "stat" => &STAT,
        "du" => &DU,
        "diff" => &DIFF,
        "cmp" => &CMP,
        "comm" => &COMM,
        "md5sum" | "sha1sum" | "sha256sum" | "sha512sum" => &DIGEST,
        "sed" | "gsed" => &SED,
        "awk" | "gawk" | "mawk" | "nawk" => &AWK,
        "tar" | "gtar" => &TAR,
        "tee" => &TEE,
        "cp" | "mv" | "ln" | "link" | "install" | "mkdir" | "mkfifo" | "rmdir" | "rm" | "unlink"
        | "shred" | "touch" | "truncate" | "dd" | "chmod" | "chown" | "chgrp" => &WRITER,
        _ => return None,
    })
}
