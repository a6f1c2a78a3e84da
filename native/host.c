// The host of the small engine (quickjs-ng): starts the engine, gives the program one door to libc, and runs the module
// plugins/index.ts. lib/os/door-engine.ts is the other side of the door. The engine comes out of the frozen heap
// (heap.c), where all modules are evaluated already. An executable without a frozen heap has the bytecode of the
// modules instead (bytecode.c) and reads each when it is imported. The garbage collector for cycles never runs: a call
// of a plugin is shorter than its first collection.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "heap.h"

// The modules: of each its name, a zero byte, the size of its bytecode in 8 bytes, and the bytecode. An empty name ends
// them.
extern const char linked_modules[];
static const char *modules = linked_modules;
extern char **environ;

static const char ENTRY[] = "plugins/index.ts";
// The engine refuses deeper recursion with an error that the program can catch.
static const size_t STACK_BYTES = 4 << 20;
// The engine and the libc need some tens of KB of the stack.
static const size_t LEAST_STACK = 128 << 10;
// `plumb install` knows an executable of plumb by this line (agent/node/executables.ts).
__attribute__((used, retain)) static const char mark[] = "plumb: one executable for all plugins, told apart by the name it is called by";
static int last_error;

// An answer for a runtime when the program itself cannot answer (CNI spec 1.1.0 section 5): an error object on stdout,
// and exit status 1.
_Noreturn static void die(const char *message, const char *details) {
  const char *texts[] = { message, details };
  printf("{\n    \"cniVersion\": \"1.1.0\",\n    \"code\": 999");
  for (int i = 0; i < 2; i++) {
    printf(",\n    \"%s\": \"", i == 0 ? "msg" : "details");
    for (const unsigned char *c = (const unsigned char *)texts[i]; *c; c++) printf(*c < 0x20 || *c == '"' || *c == '\\' ? "\\u%04x" : "%c", *c);
    putchar('"');
  }
  printf("\n}\n");
  fflush(stdout);
  _exit(1);
}

void no_memory(void) {
  die("Cannot run the plugin: there is no memory", "a call needs 10 MB; see ulimit -v, and the memory limit of the runtime's unit");
}

// Reports the engine's pending error: its message, and the functions and lines that it came through.
static void die_of_exception(JSContext *ctx) {
  JSValue error = JS_GetException(ctx);
  JSValue trace = JS_IsError(error) ? JS_GetPropertyStr(ctx, error, "stack") : JS_UNDEFINED;
  const char *message = JS_ToCString(ctx, error), *stack = JS_IsString(trace) ? JS_ToCString(ctx, trace) : "";
  char text[1024];
  snprintf(text, sizeof text, "Unexpected failure: %s", message ? message : "unknown");
  die(text, stack ? stack : "");
}

// The bytecode of a module, and the module after it.
static const char *code_of(const char *module, size_t *size) {
  const char *at = module + strlen(module) + 1;
  memcpy(size, at, sizeof *size);
  return at + sizeof *size;
}

static const char *after(const char *module) {
  size_t size;
  const char *code = code_of(module, &size);
  return code + size;
}

static JSModuleDef *load(JSContext *ctx, const char *name, void *unused) {
  const char *module = modules;
  while (*module && strcmp(module, name)) module = after(module);
  if (!*module) {
    JS_ThrowReferenceError(ctx, "there is no module %s", name);
    return NULL;
  }
  size_t size;
  const char *code = code_of(module, &size);
  JSValue read = JS_ReadObject(ctx, (const uint8_t *)code, size, JS_READ_OBJ_BYTECODE);
  if (JS_IsException(read)) return NULL;
  JSModuleDef *made = JS_VALUE_GET_PTR(read);
  // The context holds the module.
  JS_FreeValue(ctx, read);
  return made;
}

// An argument of a libc function: a number, a bigint, the address of a typed array's bytes, or 0 for null. Returns
// false after an error.
static bool word_of(JSContext *ctx, JSValueConst value, int64_t *word) {
  if (JS_IsNumber(value)) return JS_ToInt64(ctx, word, value) == 0;
  if (JS_IsBigInt(value)) return JS_ToBigInt64(ctx, word, value) == 0;
  *word = 0;
  if (JS_IsNull(value) || JS_IsUndefined(value)) return true;
  size_t offset = 0, length = 0;
  JSValue buffer = JS_GetTypedArrayBuffer(ctx, value, &offset, NULL, NULL);
  if (JS_IsException(buffer)) return false;
  uint8_t *bytes = JS_GetArrayBuffer(ctx, &length, buffer);
  JS_FreeValue(ctx, buffer);
  if (bytes) *word = (int64_t)(intptr_t)(bytes + offset);
  return true;
}

typedef int64_t (*Function)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);
// The functions of libc that plumb calls: lib/os/door.ts has their types. `wide`: the result has 64 bits.
#define NARROW(f) { #f, (Function)(void *)f, false }
#define WIDE(f) { #f, (Function)(void *)f, true }
static const struct { const char *name; Function function; bool wide; } libc[] = {
  NARROW(setns), NARROW(flock), NARROW(pipe2), NARROW(fcntl), { "fcntl64", (Function)(void *)fcntl, false }, NARROW(close), NARROW(socket), NARROW(ioctl),
  NARROW(bind), NARROW(connect), NARROW(getsockopt), NARROW(setsockopt), NARROW(memfd_create), WIDE(pwrite), NARROW(posix_spawn),
  NARROW(posix_spawn_file_actions_init), NARROW(posix_spawn_file_actions_adddup2), NARROW(posix_spawn_file_actions_destroy), NARROW(execve),
  NARROW(waitpid), NARROW(kill), NARROW(poll), NARROW(usleep), NARROW(clock_gettime), WIDE(syscall), NARROW(access), NARROW(open), WIDE(read), WIDE(pread),
  WIDE(write), WIDE(lseek), NARROW(ftruncate), NARROW(fsync), NARROW(statx), WIDE(getdents64), NARROW(statfs), WIDE(readlink), NARROW(mkdir),
  NARROW(rmdir), NARROW(unlink), NARROW(link), NARROW(symlink), NARROW(rename), NARROW(utimensat), WIDE(send), WIDE(sendto), WIDE(recv), WIDE(recvfrom),
};

// The build evaluates the modules: what they would learn of its machine then would be kept.
static bool is_building;

static JSValue call(JSContext *ctx, JSValueConst self, int count, JSValueConst *args, int which) {
  if (is_building) return JS_ThrowInternalError(ctx, "a module calls %s while the build evaluates it", libc[which].name);
  int64_t words[6] = { 0 };
  for (int i = 0; i < count && i < 6; i++) if (!word_of(ctx, args[i], &words[i])) return JS_EXCEPTION;
  int64_t result = libc[which].function(words[0], words[1], words[2], words[3], words[4], words[5]);
  last_error = errno;
  return libc[which].wide ? JS_NewInt64(ctx, result) : JS_NewInt32(ctx, (int32_t)result);
}

static JSValue error_number(JSContext *ctx, JSValueConst self, int count, JSValueConst *args) {
  return JS_NewInt32(ctx, last_error);
}

static JSValue process_id(JSContext *ctx, JSValueConst self, int count, JSValueConst *args) {
  return JS_NewInt32(ctx, getpid());
}

static JSValue address_of(JSContext *ctx, JSValueConst self, int count, JSValueConst *args) {
  int64_t word;
  return word_of(ctx, args[0], &word) ? JS_NewInt64(ctx, word) : JS_EXCEPTION;
}

static JSValue now(JSContext *ctx, JSValueConst self, int count, JSValueConst *args) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return JS_NewFloat64(ctx, time.tv_sec * 1e3 + time.tv_nsec / 1e6);
}

static JSValue leave(JSContext *ctx, JSValueConst self, int count, JSValueConst *args) {
  int status = 1;
  JS_ToInt32(ctx, &status, args[0]);
  _exit(status);
}

// The bytes of a well-formed text in UTF-8.
static JSValue encode(JSContext *ctx, JSValueConst self, int count, JSValueConst *args) {
  size_t length;
  const char *text = JS_ToCStringLen(ctx, &length, args[0]);
  if (!text) return JS_EXCEPTION;
  JSValue bytes = JS_NewUint8ArrayCopy(ctx, (const uint8_t *)text, length);
  JS_FreeCString(ctx, text);
  return bytes;
}

// How many bytes from `at` are one character of UTF-8 (RFC 3629). Negative: how many bytes are the longest begin of
// one.
static int character(const uint8_t *at, const uint8_t *end) {
  if (*at < 0x80) return 1;
  int more = *at >= 0xc2 && *at <= 0xdf ? 1 : *at >= 0xe0 && *at <= 0xef ? 2 : *at >= 0xf0 && *at <= 0xf4 ? 3 : 0;
  for (int i = 1; i <= more; i++) {
    uint8_t low = i > 1 ? 0x80 : *at == 0xe0 ? 0xa0 : *at == 0xf0 ? 0x90 : 0x80;
    uint8_t high = i > 1 ? 0xbf : *at == 0xed ? 0x9f : *at == 0xf4 ? 0x8f : 0xbf;
    if (at + i >= end || at[i] < low || at[i] > high) return -i;
  }
  return more == 0 ? -1 : more + 1;
}

// The text of bytes in UTF-8. Each begin of a character that does not end becomes U+FFFD, as in the Encoding Standard.
static JSValue text_of(JSContext *ctx, const uint8_t *bytes, size_t length) {
  const uint8_t *end = bytes + length, *at = bytes;
  int step = 1;
  while (at < end && (step = character(at, end)) > 0) at += step;
  if (at >= end) return JS_NewStringLen(ctx, (const char *)bytes, length);
  uint8_t *whole = malloc(length * 3), *to = whole;
  if (!whole) no_memory();
  for (at = bytes; at < end; at += abs(step)) {
    step = character(at, end);
    memcpy(to, step > 0 ? at : (const uint8_t *)"\xef\xbf\xbd", step > 0 ? step : 3);
    to += step > 0 ? step : 3;
  }
  JSValue text = JS_NewStringLen(ctx, (const char *)whole, to - whole);
  free(whole);
  return text;
}

static JSValue decode(JSContext *ctx, JSValueConst self, int count, JSValueConst *args) {
  size_t length;
  uint8_t *bytes = JS_GetUint8Array(ctx, &length, args[0]);
  return bytes || length == 0 ? text_of(ctx, bytes, length) : JS_EXCEPTION;
}

static void add_function(JSContext *ctx, JSValue to, const char *name, JSCFunction *function, int count) {
  JS_SetPropertyStr(ctx, to, name, JS_NewCFunction(ctx, function, name, count));
}

// What the program may use of the machine.
static JSValue host_of(JSContext *ctx) {
  JSValue host = JS_NewObject(ctx), door = JS_NewObject(ctx);
  for (size_t i = 0; i < sizeof libc / sizeof *libc; i++)
    JS_SetPropertyStr(ctx, door, libc[i].name, JS_NewCFunctionMagic(ctx, call, libc[i].name, 6, JS_CFUNC_generic_magic, (int)i));
  JS_SetPropertyStr(ctx, host, "libc", door);
  JS_SetPropertyStr(ctx, host, "env", JS_NewObject(ctx));
  JS_SetPropertyStr(ctx, host, "args", JS_NewArray(ctx));
#ifdef __aarch64__
  JS_SetPropertyStr(ctx, host, "isArm", JS_TRUE);
#else
  JS_SetPropertyStr(ctx, host, "isArm", JS_FALSE);
#endif
  add_function(ctx, host, "pid", process_id, 0);
  add_function(ctx, host, "errno", error_number, 0);
  add_function(ctx, host, "pointerTo", address_of, 1);
  add_function(ctx, host, "exit", leave, 1);
  add_function(ctx, host, "now", now, 0);
  add_function(ctx, host, "encode", encode, 1);
  add_function(ctx, host, "decode", decode, 1);
  return host;
}

// Runs a module to its end, with what it awaits.
static void run(JSContext *ctx, JSModuleDef *module) {
  if (!module || JS_ResolveModule(ctx, JS_MKPTR(JS_TAG_MODULE, module)) < 0) die_of_exception(ctx);
  JSValue done = JS_EvalFunction(ctx, JS_DupValue(ctx, JS_MKPTR(JS_TAG_MODULE, module)));
  if (JS_IsException(done)) die_of_exception(ctx);
  JSContext *at;
  int left;
  while ((left = JS_ExecutePendingJob(JS_GetRuntime(ctx), &at)) > 0);
  if (left < 0) die_of_exception(at);
  if (JS_PromiseState(ctx, done) == JS_PROMISE_FULFILLED) return;
  if (JS_PromiseState(ctx, done) == JS_PROMISE_REJECTED) JS_Throw(ctx, JS_PromiseResult(ctx, done));
  else JS_ThrowInternalError(ctx, "a module waits for what never comes");
  die_of_exception(ctx);
}

// An engine with the globals of the plugins.
static JSContext *new_engine(bool freezes) {
  JSRuntime *runtime = new_runtime(freezes);
  JSContext *ctx = JS_NewContextRaw(runtime);
  // The language without eval, proxies and weak references.
  if (JS_AddIntrinsicBaseObjects(ctx) || JS_AddIntrinsicDate(ctx) || JS_AddIntrinsicRegExp(ctx) || JS_AddIntrinsicJSON(ctx) ||
      JS_AddIntrinsicMapSet(ctx) || JS_AddIntrinsicTypedArrays(ctx) || JS_AddIntrinsicPromise(ctx)) no_memory();
  JS_SetGCThreshold(runtime, (size_t)-1);
  JS_SetModuleLoaderFunc(runtime, NULL, load, NULL);
  JSValue global = JS_GetGlobalObject(ctx);
  JS_SetPropertyStr(ctx, global, "host", host_of(ctx));
  run(ctx, load(ctx, "native/globals.ts", NULL));
  return ctx;
}

// The build calls an executable whose heap is empty as `freeze HEAP MODULES`: the file to write, and the file of the
// modules. All modules are evaluated but the entry, which is only linked with them.
static int freeze(const char *to, const char *from) {
  int fd = open(from, O_RDONLY);
  struct stat file;
  if (fd < 0 || fstat(fd, &file) < 0) return 1;
  modules = mmap(NULL, file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (modules == MAP_FAILED) return 1;
  is_building = true;
  JSContext *ctx = new_engine(true);
  for (const char *module = modules; *module; module = after(module)) {
    if (strcmp(module, ENTRY)) run(ctx, load(ctx, module, NULL));
    JS_RunGC(JS_GetRuntime(ctx));
  }
  heap.entry = load(ctx, ENTRY, NULL);
  if (!heap.entry) die_of_exception(ctx);
  heap.ctx = ctx;
  return write_heap(to) ? 0 : 1;
}

// Gives the program the environment and the arguments of this call.
static void tell_call(JSContext *ctx, int argc, char **argv) {
  JSValue global = JS_GetGlobalObject(ctx), host = JS_GetPropertyStr(ctx, global, "host");
  JSValue env = JS_GetPropertyStr(ctx, host, "env"), args = JS_GetPropertyStr(ctx, host, "args");
  for (char **one = environ; *one; one++) {
    char *equals = strchr(*one, '=');
    if (!equals) continue;
    JSValue name = text_of(ctx, (uint8_t *)*one, equals - *one);
    JSAtom key = JS_ValueToAtom(ctx, name);
    // Of two variables of one name the first counts, as for getenv(3) and libcni.
    if (!JS_GetOwnProperty(ctx, NULL, env, key))
      JS_DefinePropertyValue(ctx, env, key, text_of(ctx, (uint8_t *)equals + 1, strlen(equals + 1)), JS_PROP_C_W_E);
    JS_FreeAtom(ctx, key);
    JS_FreeValue(ctx, name);
  }
  for (int i = 0; i < argc; i++) JS_SetPropertyUint32(ctx, args, i, text_of(ctx, (uint8_t *)argv[i], strlen(argv[i])));
}

int main(int argc, char **argv) {
  if (!heap.ctx && argc == 3 && !strcmp(argv[0], "freeze")) return freeze(argv[1], argv[2]);
  // A file that the program opens must not become its stdout.
  for (int fd = 0; fd < 3; fd++) if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDWR | O_CLOEXEC);
  // A write to a closed pipe fails with EPIPE, and one above the limit of a file's size with EFBIG.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  // A runtime may ignore the end of its children. Then the kernel forgets the exit status of a tool.
  signal(SIGCHLD, SIG_DFL);
  JSContext *ctx = heap.ctx ? heap.ctx : new_engine(false);
  JSRuntime *runtime = JS_GetRuntime(ctx);
  struct rlimit stack;
  size_t most = getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < 2 * STACK_BYTES ? stack.rlim_cur / 2 : STACK_BYTES;
  if (most < LEAST_STACK / 2) die("Cannot run the plugin: its stack is too small", "a call needs 128 KB; see ulimit -s (LimitSTACK=)");
  JS_UpdateStackTop(runtime);
  JS_SetMaxStackSize(runtime, most);
  tell_call(ctx, argc, argv);
  run(ctx, heap.entry ? heap.entry : load(ctx, ENTRY, NULL));
  return 0;
}
