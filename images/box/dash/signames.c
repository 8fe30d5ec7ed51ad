/* Names of the signals of Linux, signal(7), by number. Written for this tree under its own licence, in place of the
   table that the release generates with a program of GNU Bash. dash compares every entry, so that none may be null. */

#include <signal.h>

#define REALTIME(n) [32 + (n)] = "RT" #n

const char *const signal_names[NSIG + 1] = {
    [0] = "EXIT",
    [SIGHUP] = "HUP",       [SIGINT] = "INT",   [SIGQUIT] = "QUIT", [SIGILL] = "ILL",
    [SIGTRAP] = "TRAP",     [SIGABRT] = "ABRT", [SIGBUS] = "BUS",   [SIGFPE] = "FPE",
    [SIGKILL] = "KILL",     [SIGUSR1] = "USR1", [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2",
    [SIGPIPE] = "PIPE",     [SIGALRM] = "ALRM", [SIGTERM] = "TERM", [16] = "STKFLT",
    [SIGCHLD] = "CHLD",     [SIGCONT] = "CONT", [SIGSTOP] = "STOP", [SIGTSTP] = "TSTP",
    [SIGTTIN] = "TTIN",     [SIGTTOU] = "TTOU", [SIGURG] = "URG",   [SIGXCPU] = "XCPU",
    [SIGXFSZ] = "XFSZ",     [SIGVTALRM] = "VTALRM", [SIGPROF] = "PROF", [SIGWINCH] = "WINCH",
    [SIGIO] = "IO",         [SIGPWR] = "PWR",   [SIGSYS] = "SYS",
    REALTIME(0),  REALTIME(1),  REALTIME(2),  REALTIME(3),  REALTIME(4),  REALTIME(5),  REALTIME(6),  REALTIME(7),
    REALTIME(8),  REALTIME(9),  REALTIME(10), REALTIME(11), REALTIME(12), REALTIME(13), REALTIME(14), REALTIME(15),
    REALTIME(16), REALTIME(17), REALTIME(18), REALTIME(19), REALTIME(20), REALTIME(21), REALTIME(22), REALTIME(23),
    REALTIME(24), REALTIME(25), REALTIME(26), REALTIME(27), REALTIME(28), REALTIME(29), REALTIME(30), REALTIME(31),
    REALTIME(32),
};

_Static_assert(NSIG == 65, "a system with other signals needs other names");
