/* What dash's configure finds on Linux with glibc or musl, without what dash does not ask for. */
#define _GNU_SOURCE 1
#define HAVE_ALIAS_ATTRIBUTE 1
#define HAVE_ALLOCA_H 1
#define HAVE_BSEARCH 1
#define HAVE_DECL_ISBLANK 1
#define HAVE_FACCESSAT 1
#define HAVE_FNMATCH 1
#define HAVE_GETPWNAM 1
#define HAVE_GETRLIMIT 1
#define HAVE_ISALPHA 1
#define HAVE_KILLPG 1
#define HAVE_MEMPCPY 1
#define HAVE_PATHS_H 1
#define HAVE_STPCPY 1
#define HAVE_STRCHRNUL 1
#define HAVE_STRSIGNAL 1
#define HAVE_STRTOD 1
#define HAVE_STRTOIMAX 1
#define HAVE_STRTOUMAX 1
#define HAVE_ST_MTIM 1
#define HAVE_SYSCONF 1
#define SIZEOF_INTMAX_T 8
#define SIZEOF_LONG_LONG_INT 8
/* Neither line editing nor history. */
#define SMALL 1
