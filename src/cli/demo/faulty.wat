;; The second policy of the demonstration: allows every tool, but fails on two of them.
;; `crash` makes it trap, `spin` makes it run forever. Neither call reaches the server.
(component
  (core module $m
    (memory (export "memory") 2)
    (global $top (mut i32) (i32.const 2048))
    (data (i32.const 1024) "crash")
    (data (i32.const 1032) "spin")

    ;; Room for the parameters: never given back, because the sandbox ends with the call.
    (func (export "cabi_realloc") (param i32 i32) (param $align i32) (param $size i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and
        (i32.add (global.get $top) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
      (global.set $top (i32.add (local.get $at) (local.get $size)))
      (block $fits (loop $more
        (br_if $fits (i32.le_u (global.get $top) (i32.shl (memory.size) (i32.const 16))))
        (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))
        (br $more)))
      (local.get $at))

    ;; Is the name at `in` the text of `len` bytes at `text`?
    (func $name_is (param $in i32) (param $text i32) (param $len i32) (result i32)
      (local $name i32) (local $i i32)
      (if (i32.ne (i32.load offset=4 (local.get $in)) (local.get $len)) (then (return (i32.const 0))))
      (local.set $name (i32.load (local.get $in)))
      (block $end (loop $next
        (br_if $end (i32.eq (local.get $i) (local.get $len)))
        (if (i32.ne (i32.load8_u (i32.add (local.get $name) (local.get $i)))
                    (i32.load8_u (i32.add (local.get $text) (local.get $i))))
          (then (return (i32.const 0))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $next)))
      (i32.const 1))

    (func (export "authorize") (param $in i32) (result i32)
      (if (call $name_is (local.get $in) (i32.const 1024) (i32.const 5)) (then unreachable))
      (if (call $name_is (local.get $in) (i32.const 1032) (i32.const 4)) (then (loop $forever (br $forever))))
      ;; Case 0 is `allow`.
      (i32.store8 (i32.const 16) (i32.const 0))
      (i32.const 16)))

  (core instance $i (instantiate $m))
  (type $context (record (field "seam" string) (field "server" string)
    (field "session" string) (field "transport" string) (field "protocol-version" string)
    (field "client-json" string) (field "principal" (option string)) (field "claims-json" string)
    (field "tool-json" string) (field "extra-json" string) (field "now-unix-ms" f64)))
  (type $decision (variant (case "allow") (case "ask" string) (case "deny" string)))
  (func $authorize (param "name" string) (param "args-json" string) (param "ctx" $context) (result $decision)
    (canon lift (core func $i "authorize") (memory $i "memory") (realloc (func $i "cabi_realloc"))))
  (component $authorizer
    (type $context-type (record (field "seam" string) (field "server" string)
      (field "session" string) (field "transport" string) (field "protocol-version" string)
      (field "client-json" string) (field "principal" (option string)) (field "claims-json" string)
      (field "tool-json" string) (field "extra-json" string) (field "now-unix-ms" f64)))
    (type $decision-type (variant (case "allow") (case "ask" string) (case "deny" string)))
    (import "context-in" (type $context-in (eq $context-type)))
    (import "decision-in" (type $decision-in (eq $decision-type)))
    (import "authorize-in" (func $in
      (param "name" string) (param "args-json" string) (param "ctx" $context-in) (result $decision-in)))
    (export $context-out "context" (type $context-in))
    (export $decision-out "decision" (type $decision-in))
    (export "authorize" (func $in) (func
      (param "name" string) (param "args-json" string) (param "ctx" $context-out) (result $decision-out))))
  (instance $exported (instantiate $authorizer
    (with "context-in" (type $context)) (with "decision-in" (type $decision))
    (with "authorize-in" (func $authorize))))
  (export "gatewright:policy/authorizer@1.0.0" (instance $exported)))
