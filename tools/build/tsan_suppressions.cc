// Note [What ThreadSanitizer cannot see]
// LibTorch is not instrumented: that a count of references in it reached zero orders nothing for
// the sanitizer, which therefore reports the destruction of each collective's work, by the rank
// that waited, against the thread of Gloo that finished it. Reports with a frame of c10d or Gloo in
// one of the two stacks are dropped; races of our own code among itself are not.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT: the sanitizer's name for it
  return "race:^c10d::\n"
         "race:^gloo::\n";
}
