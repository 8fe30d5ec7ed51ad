#!/bin/sh
# Starts programs that people develop with, each as its users do, and prints a line for each: `NAME ok`, or `NAME failed` and
# the end of what it said.
#
#   start-programs [NAME…]
set -u

PLACE=${PLACE:-$PWD/programs}
export NEXT_TELEMETRY_DISABLED=1

# until_ok COMMAND…: repeats it until it succeeds, for two minutes at most.
until_ok() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 240 ] || return 1
        sleep 0.5
    done
}

# served URL TEXT
served() { curl -fsS --max-time 60 "$1" 2>/dev/null | grep -q "$2"; }

site() {
    mkdir -p pages
    ln -sfn /usr/local/lib/sites/node_modules node_modules
    echo '{"private": true}' >package.json
    echo '<h1>hello from vite</h1>' >index.html
    echo 'export default function Home() { return <h1>hello from next</h1>; }' >pages/index.js
}

vite() {
    site
    node_modules/.bin/vite --host --port 5173 &
    until_ok served http://localhost:5173/ 'hello from vite'
}

next() {
    site
    node_modules/.bin/next dev --port 3000 &
    until_ok served http://localhost:3000/ 'hello from next'
}

jupyter_kernel() {
    cat >book.ipynb <<'END'
{"cells": [{"cell_type": "code", "execution_count": null, "id": "a", "metadata": {}, "outputs": [], "source": ["print(6 * 7)"]}],
 "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}, "nbformat": 4, "nbformat_minor": 5}
END
    jupyter nbconvert --to markdown --execute --stdout book.ipynb | grep -qx '    42'
}

postgresql() {
    bin=$(echo /usr/lib/postgresql/*/bin)
    "$bin/initdb" --pgdata data --username me --auth trust >initdb.log 2>&1 || { cat initdb.log; return 1; }
    "$bin/postgres" -D data -k "$PWD" -c listen_addresses=localhost >server.log 2>&1 &
    until_ok "$bin/pg_isready" --quiet --host localhost || { cat server.log; return 1; }
    "$bin/psql" --host localhost --username me postgres --tuples-only --no-align --command \
        "set debug_parallel_query = on; set force_parallel_mode = on; select sum(n) from generate_series(1, 1000) n" 2>/dev/null |
        grep -qx 500500 ||
        "$bin/psql" --host localhost --username me postgres --tuples-only --no-align --command "select sum(n) from generate_series(1, 1000) n" |
        grep -qx 500500
}

redis() {
    redis-server --port 6379 --save '' >redis.log 2>&1 &
    until_ok redis-cli -h localhost set key value >/dev/null || { cat redis.log; return 1; }
    [ "$(redis-cli -h localhost get key)" = value ]
}

chromium() {
    echo '<p id=p>not yet</p><script>document.getElementById("p").textContent = "ran " + 6 * 7</script>' >index.html
    python3 -m http.server 8000 --bind localhost >server.log 2>&1 &
    until_ok served http://localhost:8000/ 'not yet'
    # Its own sandbox needs namespaces, which a run does not have: the run is the sandbox.
    /usr/bin/chromium --headless=new --no-sandbox --disable-gpu --user-data-dir="$PWD/profile" --dump-dom http://localhost:8000/ 2>chromium.log |
        grep -q 'ran 42' || { tail -n 20 chromium.log; return 1; }
}

pytest_xdist() {
    printf 'import pytest\n\n@pytest.mark.parametrize("n", range(40))\ndef test(n, tmp_path):\n    (tmp_path / "f").write_text("x")\n' >test_it.py
    python3 -m pytest -q -n 4 test_it.py | grep -q '40 passed'
}

multiprocessing() {
    cat >work.py <<'END'
import multiprocessing as m
from multiprocessing import shared_memory

def double(x):
    return 2 * x

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context = m.get_context(method)
        with context.Pool(4) as pool:
            assert pool.map(double, range(100)) == [2 * x for x in range(100)]
        queue, lock = context.Queue(), context.Lock()
        with lock:
            queue.put(1)
        assert queue.get() == 1
    block = shared_memory.SharedMemory(create=True, size=1 << 20)
    block.close()
    block.unlink()
    with m.Manager() as manager:
        assert manager.dict(a=1)["a"] == 1
END
    python3 work.py
}

java_main() {
    cat >Main.java <<'END'
import java.net.*;
import java.util.*;

public class Main {
    public static void main(String[] arguments) throws Exception {
        System.out.println(InetAddress.getLocalHost() + " " + InetAddress.getByName("localhost").isLoopbackAddress());
        try (ServerSocket server = new ServerSocket(0); Socket client = new Socket("localhost", server.getLocalPort())) {
            System.out.println(Collections.list(NetworkInterface.getNetworkInterfaces()).get(0).getName());
        }
    }
}
END
    javac Main.java && java -cp . Main >java.log
    cat java.log
    grep -qx 'cofferdam/127.0.0.1 true' java.log && grep -qx lo java.log
}

go_test() {
    export GOCACHE="$PWD/cache" GOPATH="$PWD/path" GOFLAGS=-mod=mod
    printf 'module example.org/m\n\ngo 1.19\n' >go.mod
    cat >it_test.go <<'END'
package m

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

func TestIt(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	if _, err := http.Get(server.URL); err != nil {
		t.Fatal(err)
	}
	name, _ := os.Hostname()
	for _, host := range []string{"localhost", name} {
		if _, err := net.LookupHost(host); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := net.Interfaces(); err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
}
END
    go test ./... && CGO_ENABLED=0 go test -count=1 ./...
}

cargo_test() {
    export CARGO_HOME="$PWD/home"
    mkdir -p src
    printf '[package]\nname = "it"\nversion = "0.1.0"\nedition = "2021"\n' >Cargo.toml
    cat >src/lib.rs <<'END'
#[test]
fn serves() {
    let server = std::net::TcpListener::bind("localhost:0").unwrap();
    std::net::TcpStream::connect(("localhost", server.local_addr().unwrap().port())).unwrap();
    std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(|| std::env::temp_dir()))));
}
END
    cargo test --offline --quiet
}

erlang() {
    export HOME="$PWD"
    erl -sname one -setcookie c -noshell -eval \
        'io:format("~p~n", [node()]), {ok, _} = inet:getifaddrs(), {ok, Names} = erl_epmd:names(), io:format("~p~n", [Names]), halt().' >erl.log 2>&1
    epmd -kill >/dev/null 2>&1
    grep -qx 'one@cofferdam' erl.log || { cat erl.log; return 1; }
}

if [ $# -eq 0 ]; then
    set -- vite next jupyter_kernel postgresql redis chromium pytest_xdist multiprocessing java_main go_test cargo_test erlang
fi
for name in "$@"; do
    mkdir -p "$PLACE/$name/tmp"
    # A shell of its own, whose servers are ended with it.
    if (
        cd "$PLACE/$name" || exit 1
        export TMPDIR="$PWD/tmp"
        "$name"
        status=$?
        for pid in $(jobs -p); do kill "$pid" 2>/dev/null; done
        exit "$status"
    ) >"$PLACE/$name.log" 2>&1; then
        echo "$name ok"
    else
        echo "$name failed: $(tail -c 1500 "$PLACE/$name.log")"
    fi
done
