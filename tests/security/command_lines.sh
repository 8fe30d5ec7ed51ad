#!/bin/sh
# Runs in an image: takes command lines from standard input, one a line, runs each in a tree of files that is made anew after
# a line that changed it, and prints for each its exit code and what the tree and the process table are afterwards.
#
#   0 same
#   0 changed

# Names, kinds, modes, owners, inodes, sizes, times of change and contents; and the number of processes.
look() {
    find /scratch/tree /tmp -exec stat -c '%n %f %u %g %i %s %y %z' {} + | sort
    find /scratch/tree /tmp -type f -exec md5sum {} + | sort
    set -- /proc/[0-9]*
    echo "$#"
}

make_tree() {
    rm -rf /scratch/tree
    mkdir -p /scratch/tree/dir/deep
    cd /scratch/tree || exit 1
    printf 'one:1\ntwo:2\nthree:3\n' >a.txt
    printf 'one\nfour\n' >b.txt
    printf 'a\nb\n' >sorted
    echo x >'sp ace.txt'
    echo y >dir/inner.txt
    echo z >dir/deep/x.rs
    : >empty
    printf 'a.txt\0b.txt\0' >list0
    printf '#!/bin/sh\n: >ran\n' >program
    chmod 755 program
    seq 1 30000 >big.txt
    tar -cf a.tar dir
}

# Looks until nothing changes by itself: a process that a line left may take a moment to go.
settled() {
    before=$(look)
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.05
        now=$(look)
        [ "$before" = "$now" ] && return
        before=$now
    done
}

# What asks is answered.
yes y 2>/dev/null | head -n 100 >/scratch/answers
make_tree
settled
while IFS= read -r line; do
    sh -c "$line" </scratch/answers >/dev/null 2>&1
    code=$?
    after=$(look)
    if [ "$before" = "$after" ]; then
        echo "$code same"
    else
        echo "$code changed"
        make_tree
        settled
    fi
done
