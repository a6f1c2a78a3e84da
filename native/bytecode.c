// Compiles modules to the bytecode of quickjs-ng, in the format of native/host.c. Runs on the machine that builds.
//   bytecode OUTPUT NAME=FILE...
#include <quickjs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The compiler asks for each imported module. Only the names matter here.
static JSModuleDef *named(JSContext *ctx, const char *name, void *unused) {
  return JS_NewCModule(ctx, name, NULL);
}

static char *content(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  fseek(file, 0, SEEK_END);
  *size = ftell(file);
  rewind(file);
  char *text = malloc(*size + 1);
  if (fread(text, 1, *size, file) != *size) return NULL;
  text[*size] = 0;
  fclose(file);
  return text;
}

int main(int argc, char **argv) {
  FILE *to = argc > 2 ? fopen(argv[1], "wb") : NULL;
  if (!to) return fprintf(stderr, "usage: bytecode OUTPUT NAME=FILE...\n"), 2;
  for (int i = 2; i < argc; i++) {
    char *path = strchr(argv[i], '=');
    size_t size;
    *path++ = 0;
    char *text = content(path, &size);
    if (!text) return fprintf(stderr, "Cannot read %s\n", path), 1;
    JSRuntime *runtime = JS_NewRuntime();
    JSContext *ctx = JS_NewContext(runtime);
    JS_SetModuleLoaderFunc(runtime, NULL, named, NULL);
    JSValue module = JS_Eval(ctx, text, size, argv[i], JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
    if (JS_IsException(module)) return fprintf(stderr, "Cannot compile %s: %s\n", argv[i], JS_ToCString(ctx, JS_GetException(ctx))), 1;
    // Without debug information a module cannot import(), and an error has no function and line. The source text is
    // left out.
    size_t length;
    uint8_t *code = JS_WriteObject(ctx, &length, module, JS_WRITE_OBJ_BYTECODE | JS_WRITE_OBJ_STRIP_SOURCE);
    if (!code) return fprintf(stderr, "Cannot write the bytecode of %s\n", argv[i]), 1;
    fwrite(argv[i], strlen(argv[i]) + 1, 1, to);
    fwrite(&length, sizeof length, 1, to);
    fwrite(code, length, 1, to);
  }
  fputc(0, to);
  return fclose(to) == 0 ? 0 : 1;
}
