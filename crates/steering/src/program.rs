//! The BPF program of type `sk_lookup` that steers (bpf(2), and `Documentation/bpf/prog_sk_lookup.rst` of Linux).
//!
//! The kernel runs it when it looks for the listener of a new TCP connection, and for the socket of a UDP packet that no connected
//! socket takes.

use crate::bpf::{Instruction, SocketMap};

/// Position of the TCP socket in the map of sockets.
const TCP: i32 = 0;
/// Position of the DNS socket in the map of sockets.
const DNS: i32 = 1;
/// Port of DNS queries.
const DOMAIN: i32 = 53;

/// Offsets in `struct bpf_sk_lookup` of `linux/bpf.h`.
mod field {
    pub(super) const FAMILY: i16 = 8;
    pub(super) const PROTOCOL: i16 = 12;
    pub(super) const LOCAL_IP4: i16 = 40;
    pub(super) const LOCAL_IP6: [i16; 4] = [44, 48, 52, 56];
    pub(super) const LOCAL_PORT: i16 = 60;
}

/// Helpers of `linux/bpf.h`.
mod helper {
    pub(super) const MAP_LOOKUP_ELEM: i32 = 1;
    pub(super) const SK_RELEASE: i32 = 86;
    pub(super) const SK_ASSIGN: i32 = 124;
}

const SK_DROP: i32 = 0;
const SK_PASS: i32 = 1;

/// First byte of 127.0.0.0/8, as the program sees an IPv4 address.
const LOOPBACK: i32 = 127;
/// Mask of the first byte of an IPv4 address.
const FIRST: i32 = i32::from_ne_bytes([0xff, 0, 0, 0]);
/// Last word of `::1`.
const LAST: i32 = i32::from_ne_bytes([0, 0, 0, 1]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    Ipv4,
    Kind,
    Assign,
    Pass,
    Refuse,
}

enum Step {
    Do(Instruction),
    /// A jump to a label.
    Jump(Instruction, Label),
    Here(Label),
}

/// Returns the program that steers to the sockets of a map.
///
/// If the map has lost its socket, a connection is refused: the end of a process opens nothing.
pub(crate) fn steer(sockets: &SocketMap) -> Vec<Instruction> {
    use Instruction as I;
    use Step::{Do, Here, Jump};
    let [context, socket, key] = [6, 7, 8];
    let [low, high] = I::map(1, sockets);
    assemble(&[
        Do(I::copy(context, 1)),
        Do(I::load(2, context, field::FAMILY)),
        Jump(I::if_different(2, libc::AF_INET6), Label::Ipv4),
        Do(I::load(3, context, field::LOCAL_IP6[0])),
        Do(I::load(4, context, field::LOCAL_IP6[1])),
        Do(I::or(3, 4)),
        Do(I::load(4, context, field::LOCAL_IP6[2])),
        Do(I::or(3, 4)),
        Jump(I::if_different(3, 0), Label::Kind),
        Do(I::load(4, context, field::LOCAL_IP6[3])),
        Jump(I::if_equal(4, LAST), Label::Pass),
        Jump(I::goto(), Label::Kind),
        Here(Label::Ipv4),
        Do(I::load(3, context, field::LOCAL_IP4)),
        Do(I::and(3, FIRST)),
        Jump(I::if_equal(3, LOOPBACK & FIRST), Label::Pass),
        Here(Label::Kind),
        Do(I::set(key, TCP)),
        Do(I::load(2, context, field::PROTOCOL)),
        Jump(I::if_equal(2, libc::IPPROTO_TCP), Label::Assign),
        Do(I::load(2, context, field::LOCAL_PORT)),
        Jump(I::if_different(2, DOMAIN), Label::Pass),
        Do(I::set(key, DNS)),
        Here(Label::Assign),
        Do(I::store(10, -4, key)),
        Do(I::copy(2, 10)),
        Do(I::add(2, -4)),
        Do(low),
        Do(high),
        Do(I::call(helper::MAP_LOOKUP_ELEM)),
        Jump(I::if_equal(0, 0), Label::Refuse),
        Do(I::copy(socket, 0)),
        Do(I::copy(1, context)),
        Do(I::copy(2, socket)),
        Do(I::set(3, 0)),
        Do(I::call(helper::SK_ASSIGN)),
        Do(I::copy(context, 0)),
        Do(I::copy(1, socket)),
        Do(I::call(helper::SK_RELEASE)),
        Jump(I::if_different(context, 0), Label::Refuse),
        Here(Label::Pass),
        Do(I::set(0, SK_PASS)),
        Do(I::exit()),
        Here(Label::Refuse),
        Do(I::set(0, SK_DROP)),
        Do(I::exit()),
    ])
}

/// Resolves the labels. A jump counts from the instruction after it.
fn assemble(steps: &[Step]) -> Vec<Instruction> {
    let size = |steps: &[Step]| steps.iter().filter(|step| !matches!(step, Step::Here(_))).count();
    let position = |label: Label| {
        let at = steps.iter().position(|step| matches!(step, Step::Here(here) if *here == label));
        size(&steps[..at.unwrap_or(steps.len())])
    };
    let mut program = Vec::with_capacity(size(steps));
    for step in steps {
        match step {
            Step::Do(instruction) => program.push(*instruction),
            Step::Jump(jump, label) => {
                let over = position(*label).saturating_sub(program.len() + 1);
                program.push(jump.over(i16::try_from(over).unwrap_or(i16::MAX)));
            }
            Step::Here(_) => {}
        }
    }
    program
}
