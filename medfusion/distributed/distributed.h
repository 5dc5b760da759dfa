// Everything of this package: process groups, their setup, the mesh, decisions taken together.
#ifndef MEDFUSION_DISTRIBUTED_DISTRIBUTED_H_
#define MEDFUSION_DISTRIBUTED_DISTRIBUTED_H_

#include "medfusion/distributed/agreement.h"           // IWYU pragma: export
#include "medfusion/distributed/device_mesh.h"         // IWYU pragma: export
#include "medfusion/distributed/launch_environment.h"  // IWYU pragma: export
#include "medfusion/distributed/process_group.h"       // IWYU pragma: export
#include "medfusion/distributed/setup.h"               // IWYU pragma: export

#endif  // MEDFUSION_DISTRIBUTED_DISTRIBUTED_H_
