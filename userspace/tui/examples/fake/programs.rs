//! The invented programs and their stacks.

pub(super) struct Program {
    pub(super) pid: u32,
    pub(super) python: Option<&'static str>,
    pub(super) command: &'static str,
    pub(super) threads: &'static [&'static str],
    pub(super) shapes: &'static str,
    /// CPU use in percent of one core.
    pub(super) busy: u64,
}

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        pid: 4242,
        python: Some("3.12.1"),
        command: "/srv/app/.venv/bin/python3 -m train --config configs/large.toml --epochs 40",
        threads: &["python3", "loader-0", "loader-1"],
        shapes: TRAIN,
        busy: 170,
    },
    Program {
        pid: 918,
        python: Some("3.11.2"),
        command: "/usr/bin/python3 /usr/bin/gunicorn shop.wsgi --workers 4",
        threads: &["gunicorn", "Thread-1 (report)"],
        shapes: WEB,
        busy: 42,
    },
    Program {
        pid: 919,
        python: Some("3.11.2"),
        command: "/usr/bin/python3 /usr/bin/gunicorn shop.wsgi --workers 4",
        threads: &["gunicorn"],
        shapes: WEB,
        busy: 23,
    },
    Program {
        pid: 77120,
        python: Some("3.8.20"),
        command: "python3.8 poll.py",
        threads: &["python3.8"],
        shapes: SLEEPY,
        busy: 2,
    },
    Program {
        pid: 77121,
        python: Some("3.14.0"),
        command: "python3.14 -c import\u{a0}time;time.sleep(1000)",
        threads: &["python3.14"],
        shapes: SLEEPY,
        busy: 0,
    },
];

pub(super) const EVIL: Program = Program {
    pid: 666,
    python: Some("3.12.1"),
    command: "\u{1b}[2Jevil \u{202e}cod.exe\t",
    threads: &["\u{1b}c"],
    shapes: NASTY,
    busy: 90,
};

/// Stacks, root first. Each frame is on a line below its caller, indented by one more space: `function file line`, with `!`
/// before native and `^` before kernel frames. ` *` and a weight follow where samples are taken. Where a thread waits, ` ~`,
/// the reason, `@`, the thread's index and the milliseconds of each second follow.
const TRAIN: &str = "
<module> /srv/app/train.py 88
 Trainer.fit /srv/app/trainer.py 142
  !_PyFunction_Vectorcall libpython3.12.so.1.0
   Trainer.step /srv/app/trainer.py 187
    !_PyFunction_Vectorcall libpython3.12.so.1.0
     !method_vectorcall libpython3.12.so.1.0
      Linear.forward /srv/app/.venv/lib/python3.12/site-packages/net/layers.py 61
       !cblas_dgemm libopenblas.so.0 *30
  Trainer.step /srv/app/trainer.py 188
   Linear.backward /srv/app/.venv/lib/python3.12/site-packages/net/layers.py 79
    !cblas_dgemm libopenblas.so.0 *14
 Trainer.fit /srv/app/trainer.py 140
  DataLoader.__next__ /srv/app/.venv/lib/python3.12/site-packages/net/data/loader.py 211
   normalize /srv/app/normalize.py 31 *12
   normalize /srv/app/normalize.py 33
    !PyNumber_Multiply libpython3.12.so.1.0 *7
  DataLoader.__next__ /srv/app/.venv/lib/python3.12/site-packages/net/data/loader.py 214
   !memcpy libc.so.6
    ^asm_exc_page_fault kernel
     ^do_user_addr_fault kernel
      ^handle_mm_fault kernel
       ^clear_page_erms kernel *5
 Trainer.fit /srv/app/trainer.py 151
  Metrics.log /srv/app/metrics.py 44
   JSONEncoder.iterencode /usr/lib/python3.12/json/encoder.py 258 *3
Thread._bootstrap /usr/lib/python3.12/threading.py 1030
 !_PyObject_Call libpython3.12.so.1.0
  Loader.run /srv/app/loader.py 52
   Queue.put /usr/lib/python3.12/queue.py 140
    Condition.wait /usr/lib/python3.12/threading.py 355
     !sem_clockwait libc.so.6
      ^__x64_sys_futex kernel
       ^futex_wait kernel ~lock@1 380
  Loader.run /srv/app/loader.py 47
   Shard.read /srv/app/shards.py 118
    !read libc.so.6
     ^__x64_sys_read kernel
      ^folio_wait_bit_common kernel ~io@1 120
   Shard.read /srv/app/shards.py 121
    !take_gil libpython3.12.so.1.0 ~gil@1 240
  Loader.run /srv/app/loader.py 61
   !clock_nanosleep libc.so.6
    ^__x64_sys_clock_nanosleep kernel ~sleep@2 900
";
const WEB: &str = "
<module> /usr/bin/gunicorn 8
 run /opt/web/venv/lib/python3.11/site-packages/gunicorn/app/wsgiapp.py 67
  Worker.handle_request /opt/web/venv/lib/python3.11/site-packages/gunicorn/workers/sync.py 177
   View.dispatch /opt/web/shop/views.py 58
    Cart.total /opt/web/shop/cart.py 103
     Cart.total.<locals>.<genexpr> /opt/web/shop/cart.py 104 *9
   View.dispatch /opt/web/shop/views.py 61
    Template.render /opt/web/venv/lib/python3.11/site-packages/jinja2/environment.py 1304
     !_PyEval_Vector python3.11 *6
  Worker.accept /opt/web/venv/lib/python3.11/site-packages/gunicorn/workers/sync.py 28
   !accept4 libc.so.6
    ^entry_SYSCALL_64 kernel
     ^do_syscall_64 kernel
      ^inet_csk_accept kernel *4
  Worker.wait /opt/web/venv/lib/python3.11/site-packages/gunicorn/workers/sync.py 34
   !select libc.so.6
    ^__x64_sys_select kernel ~poll@0 520
Thread._bootstrap /usr/lib/python3.11/threading.py 995
 Reporter.run /opt/web/shop/report.py 12 *2
";
const SLEEPY: &str = "
<module> /home/ada/poll.py 7
 wait_for_change /home/ada/poll.py 3 *1
  !clock_nanosleep libc.so.6
   ^__x64_sys_clock_nanosleep kernel ~sleep@0 970
";
const NASTY: &str = "
\u{1b}[31mred\u{7} /tmp/\u{1b}]0;owned\u{7}.py 1
 <script>alert(1)</script> /tmp/a.html 2
  漢字の関数名はとても幅が広い /tmp/漢字.py 3 *5
\u{202e}desrever /tmp/\u{200b}\u{200b}zero.py 9
 👩‍👩‍👧‍👦.family /tmp/emoji.py 8
  z\u{335}\u{321}\u{322}\u{31b}\u{31b}algo /tmp/z.py 4 *4
   !\u{1b}[5mread\u{202e} /tmp/\u{9b}.so ~io@0 400
   !\u{1b}[5mread\u{202e} /tmp/\u{9b}.so ~gil@0 90
";
